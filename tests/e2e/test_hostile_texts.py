"""No text of a stranger's run steers the terminal: every byte that the app writes is looked at."""

from __future__ import annotations

import re
import sys
import time
import typing
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("pty")

from tests import fakes
from tests.app.terminal_app import TerminalApp
from tests.protocol.test_literal import harmful
from tests.recorded_run import record

EVIL = (
    "900001\x1b]52;c;x\x07\x1b[2J\x1b]8;;http://x\x1b\\\x1bc\x9b3m\u202e\u200b\x07"
    "[#010203]x[/][@click=app.quit]y[/][/]"
)
OWN = re.compile(
    r"\x1b\[(\d{0,3}(;\d{0,3})*)?[mH]"  # colours, places
    r"|\x1b\[\?(7|25|100[0-6]|1015|1016|1049|2004|2026|2048)[hl]|\x1b\[\?(2026|2048)\$p"  # modes
    r"|\x1b\[>\d\d?u|\x1b\[<u|\x1b\]22;[a-z-]+\x07"  # keyboard, shape of the pointer
)
"""The control sequences that Textual emits."""
MARKUP = "38;2;1;2;3"
"""The colour in the markup of the text."""


def with_evil(value: Any, kind: Any = None) -> Any:
    """The value with the evil text for each free text in it."""
    if isinstance(value, msgspec.Struct):
        kinds = typing.get_type_hints(type(value))
        changes = {name: with_evil(getattr(value, name), kinds[name]) for name in kinds}
        return msgspec.structs.replace(value, **changes)
    if isinstance(value, list):
        return [with_evil(each, (typing.get_args(kind) or (None,))[0]) for each in value]
    return EVIL if isinstance(value, str) and kind in (str, str | None) else value


def leaks(output: str) -> list[str]:
    """Parts of the output that Textual does not emit, with their surroundings."""
    rest = OWN.sub("", output)
    bad = [at for at, char in enumerate(rest) if harmful(char, kept="\r\n")]
    found = [repr(rest[max(0, at - 40) : at + 40]) for at in bad]
    return found + re.findall(f".{{20}}{MARKUP}", output)


def test_no_text_of_a_strangers_run_steers_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert leaks("\x1b[38;2;200;1;2mhello\x1b[0m\x1b[12;3H\r\n") == []
    assert len(leaks("\x1b]52;c;x")) == 1
    monkeypatch.setenv("COLORTERM", "truecolor")
    run = record(tmp_path / "run", [with_evil(event) for event in fakes.demo_run(batches=2)])
    command = [sys.executable, "-m", "llamagym_tui", "replay", str(run)]
    with TerminalApp(tmp_path, command=command) as app:
        app.sees("REPLAY")
        app.sees("900001")
        for key in ("\x1b[F", "k", "i", "\x1b", "m", "\x1b", "g", "\x1b", "?", "\x1b", "q"):
            app.types(key)
            end = time.monotonic() + 0.5
            while time.monotonic() < end:
                app.read()
        assert app.ends() == 0
    assert leaks(app.output.decode("utf-8", "replace"))[:5] == []
