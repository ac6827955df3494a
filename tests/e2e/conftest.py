from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def model() -> str:
    return "bundled"
