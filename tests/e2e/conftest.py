from __future__ import annotations

import os
from importlib.resources import files

import pytest


@pytest.fixture(scope="session")
def model() -> str:
    if override := os.environ.get("LLAMAGYM_TUI_E2E_MODEL"):
        return override
    if not files("llamagym_tui.bundled_model").joinpath("model.safetensors").is_file():
        pytest.skip("the bundled model is not there")
    return "bundled"
