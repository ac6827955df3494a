"""What all tests share: games of TextWorld, which take seconds to make, and fewer garbage collections."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest


def pytest_configure(config: pytest.Config) -> None:
    assert config.cache is not None
    os.environ["LLAMAGYM_TUI_CACHE"] = str(config.cache.mkdir("llamagym-tui"))


@pytest.fixture
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's data are in a folder of the test's own, `tmp_path`."""
    monkeypatch.setenv("LLAMAGYM_TUI_DATA", str(tmp_path))
    return tmp_path


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave out of collections what was imported, and collect seldom: it took a third of the time of screens' tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
