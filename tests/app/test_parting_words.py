"""What is printed once the app was left steers no terminal either."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from llamagym_tui.app.leaving import run_to_end
from llamagym_tui.state.run import initial_state
from tests import fakes
from tests.protocol.test_literal import harmful


def test_why_a_run_failed_is_printed_literally(capsys: pytest.CaptureFixture[str]) -> None:
    config = fakes.config(Path("/runs/demo"))
    state = replace(initial_state(config), failure="it\x1b]52;c;aGk=\x07\x9b2J\u202e\nbroke")
    app: Any = SimpleNamespace(
        run=lambda: None, fault=None, config=config, run_state=state, return_code=1, saved=True
    )
    assert run_to_end(app) == 1
    printed = capsys.readouterr().err
    assert printed == "it␛]52;c;aGk=␇�2J�␤broke\n"
    assert harmful(printed, kept="\n") == []
