"""The short way in means what the long one means."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from llamagym_tui.cli import main, start
from llamagym_tui.settings import RunConfig
from tests import fakes


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[RunConfig]]:
    configs: list[RunConfig] = []

    def open_playground(config: RunConfig, **more: object) -> int:
        configs.append(config)
        return 0

    monkeypatch.setenv("LLAMAGYM_TUI_DATA", str(tmp_path))
    monkeypatch.setitem(
        sys.modules, "llamagym_tui.app.app", SimpleNamespace(open_playground=open_playground)
    )
    monkeypatch.setattr(main, "_require_terminal", lambda agent: None)
    yield configs
    gc.enable()


def terminal(monkeypatch: pytest.MonkeyPatch, *, is_there: bool) -> None:
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: is_there)


def ended_with(words: list[str]) -> object:
    with pytest.raises(SystemExit) as ended:
        start.main(words)
    return ended.value.code


def test_a_built_in_name_alone_opens_what_typer_would_open(
    opened: list[RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    for is_there in (True, False):
        terminal(monkeypatch, is_there=is_there)
        assert ended_with(["blackjack"]) == 0
    short, long = (msgspec.structs.replace(config, run_dir="") for config in opened)
    assert (
        short
        == long
        == RunConfig(
            agent="blackjack",
            run_dir="",
            measured=fakes.MEASURED_OF_HEAD,
            **fakes.HEAD_ALONE,
        )
    )


@pytest.mark.parametrize(
    ("words", "code"), [(["generic"], 2), (["blackjak"], 2), (["agents"], 0), (["--version"], 0)]
)
def test_every_other_line_is_typers(
    opened: list[RunConfig], monkeypatch: pytest.MonkeyPatch, words: list[str], code: int
) -> None:
    terminal(monkeypatch, is_there=True)
    assert ended_with(words) == code
    assert opened == []
