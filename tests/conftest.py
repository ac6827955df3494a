"""Games of TextWorld take seconds to make: tests share them, and later ones find them again."""

from __future__ import annotations

import os

import pytest


def pytest_configure(config: pytest.Config) -> None:
    assert config.cache is not None
    os.environ["LLAMAGYM_TUI_CACHE"] = str(config.cache.mkdir("llamagym-tui"))
