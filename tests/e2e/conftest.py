from __future__ import annotations

from importlib.resources import files

import pytest


@pytest.fixture(scope="session")
def model() -> str:
    if not files("llamagym_tui.bundled_model").joinpath("model.safetensors").is_file():
        pytest.skip("the bundled model is not there")
    return "bundled"
