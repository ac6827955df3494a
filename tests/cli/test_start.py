"""The short way in means what the long one means."""

from __future__ import annotations

import gc
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from llamagym_tui.cli import main, start
from llamagym_tui.config import RunConfig
from llamagym_tui.errors import UsageError
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
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, ""),
        (UsageError("It is not here."), 2, "llamagym-tui: It is not here.\n"),
    ],
)
def test_a_playground_that_does_not_open_ends_as_a_command_does(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    said: str,
) -> None:
    def fails(agent: str) -> int:
        raise error

    terminal(monkeypatch, is_there=True)
    monkeypatch.setattr(start, "_playground", fails)
    assert ended_with(["blackjack"]) == code
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("words", "code"), [(["generic"], 2), (["blackjak"], 2), (["agents"], 0), (["--version"], 0)]
)
def test_every_other_line_is_typers(
    opened: list[RunConfig], monkeypatch: pytest.MonkeyPatch, words: list[str], code: int
) -> None:
    terminal(monkeypatch, is_there=True)
    assert ended_with(words) == code
    assert opened == []


@pytest.mark.parametrize(("policy", "spins"), [(None, "3000"), ("active", None)])
def test_threads_of_torch_soon_sleep_unless_it_is_set_how_they_wait(
    monkeypatch: pytest.MonkeyPatch, policy: str | None, spins: str | None
):
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.setenv(name, "")  # so that it is as before at the end
        monkeypatch.delenv(name)
    if policy:
        monkeypatch.setenv("OMP_WAIT_POLICY", policy)
    ended_with(["--version"])
    assert os.environ.get("GOMP_SPINCOUNT") == spins


def test_libraries_are_quiet_before_a_command_imports_them_unless_it_is_set_how_they_are(
    monkeypatch: pytest.MonkeyPatch,
):
    quiet = {
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
        "TRANSFORMERS_VERBOSITY": "error",
    }
    for name in quiet:
        monkeypatch.setenv(name, "")  # so that it is as before at the end
        monkeypatch.delenv(name)
    monkeypatch.setenv("TRANSFORMERS_VERBOSITY", "info")
    seen: list[dict[str, str | None]] = []
    monkeypatch.setattr(
        main,
        "app",
        lambda *_, **__: seen.append({name: os.environ.get(name) for name in quiet}),
    )
    start.main(["agents"])
    assert seen == [quiet | {"TRANSFORMERS_VERBOSITY": "info"}]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
@pytest.mark.parametrize("words", [["train", "--help"], ["--help"], ["eval", "no-such-agent-…"]])
def test_help_and_errors_are_printed_in_an_encoding_that_lacks_their_signs(
    monkeypatch: pytest.MonkeyPatch, encoding: str, words: list[str]
) -> None:
    written = {name: io.BytesIO() for name in ("stdout", "stderr")}
    for name, buffer in written.items():
        monkeypatch.setattr(sys, name, io.TextIOWrapper(buffer, encoding, errors="strict"))
    assert ended_with(words) == (2 if "eval" in words else 0)
    sys.stdout.flush()
    assert b"UnicodeEncodeError" not in written["stderr"].getvalue()
    assert bool(written["stdout"].getvalue()) == ("--help" in words)
