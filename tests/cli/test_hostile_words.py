"""File names, arguments and files of a stranger steer no terminal, whatever the command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from llamagym_tui.cli.main import app
from llamagym_tui.cli.progress import Progress
from llamagym_tui.config import RunConfig
from llamagym_tui.protocol.events import PhaseChanged, WarningRaised
from tests.protocol.test_literal import harmful

EVIL = "e\x1b]52;c;aGk=\x07\x9b31m\u202ev\u200b[red]\nil"
SAFE = "e␛]52;c;aGk=␇"
"""How it begins where it is shown."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LLAMAGYM_TUI_DATA", str(tmp_path / EVIL))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shown(*words: str) -> str:
    """What a command prints on both streams."""
    return CliRunner().invoke(app, list(words)).output


COMMANDS = [
    (EVIL,),
    ("train", EVIL),
    ("train", "blackjack", "--resume", "--run-dir", EVIL),
    ("train", "blackjack", "--prompt-file", EVIL),
    ("train", "blackjack", "--set", f"{EVIL}={EVIL}"),
    ("train", "blackjack", "--threads", EVIL),
    ("train", "blackjack", "--mode", EVIL),
    ("train", "blackjack", "--envs", EVIL),
    ("train", "blackjack", f"--{EVIL}"),
    ("train", "blackjack", EVIL),
    ("train", "blackjack", "--sft-data", EVIL),
    ("train", f"{EVIL}.py"),
    ("train", f"{EVIL}.py", "--debug"),
    ("eval", EVIL),
    ("sft", EVIL),
    ("sft", "blackjack", "--sft-data", EVIL),
    ("replay", EVIL),
    ("replay",),
    ("runs",),
    ("demos", EVIL),
    ("demos", "list", EVIL),
    ("demos", "list"),
    ("demos", "check", EVIL),
    ("demos", "check", EVIL, "--agent", EVIL),
    ("demos", "merge", EVIL, "-o", EVIL),
    ("demos", "export", EVIL, "--to", "pairs"),
    ("demos", "export", EVIL, "--to", EVIL),
    ("demos", "generate", EVIL),
    ("demos", "generate", "blackjack", "--out", f"{EVIL}/{EVIL}", "--episodes", "1"),
]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words).replace(EVIL, "EVIL"))
def test_an_argument_is_shown_literally(place: Path, words: tuple[str, ...]) -> None:
    output = shown(*words)
    assert output.strip()  # many a message has `repr`, which is literal by itself
    assert harmful(output, kept="\n") == []


@pytest.mark.parametrize("command", ["runs", "models"])
def test_a_strangers_run_is_listed_literally(place: Path, command: str) -> None:
    folder = place / EVIL / "runs" / EVIL
    (folder / "model").mkdir(parents=True)
    config = RunConfig(agent=EVIL, model=EVIL, run_dir=EVIL)
    (folder / "config.json").write_bytes(msgspec.json.encode(config))
    output = shown(command)
    assert f"runs/{SAFE}" in output
    assert harmful(output, kept="\n") == []


@pytest.mark.parametrize(
    "line", [EVIL, f'{{"{EVIL}": 1}}', '{"agent": "\\u001b]52;c;aGk=\\u0007", "x": 1}']
)
def test_a_strangers_demonstrations_are_checked_literally(place: Path, line: str) -> None:
    (place / EVIL).write_text(line + "\n", "utf-8")
    for words in (
        ("check", EVIL),
        ("list", EVIL),
        ("merge", EVIL, "-o", "out"),
        ("export", EVIL, "--to", "pairs"),
    ):
        output = shown("demos", *words)
        assert SAFE in output
        assert harmful(output, kept="\n") == []


def test_a_strangers_agent_file_fails_literally_with_and_without_its_traceback(place: Path) -> None:
    (place / "agent.py").write_text(f"raise ValueError({EVIL!r})\n", "utf-8")
    for words in (("train", "agent.py"), ("train", "agent.py", "--debug")):
        output = shown(*words)
        assert SAFE in output
        assert harmful(output, kept="\n") == []


def test_what_no_encoding_has_ends_with_a_sentence(place: Path) -> None:
    """Bytes of a file name that are no text, in a terminal without Unicode."""
    word = b"\xff\xfe\x1b]52;c;aGk=\x07\xc2\x9b31m"
    found = subprocess.run(
        [os.fsencode(sys.executable), b"-m", b"llamagym_tui", b"demos", b"list", word],
        capture_output=True,
        env={
            **os.environ,
            "PYTHONIOENCODING": "ascii:strict",
            "PYTHONPATH": str(Path(__file__).parents[2]),
        },
    )
    assert found.returncode == 2
    assert b"There is no ???]52;c;aGk=??31m;" in found.stderr
    assert b"Traceback" not in found.stderr
    assert not set(found.stdout + found.stderr) & {
        *range(0x0A),
        *range(0x0B, 0x20),
        *range(0x7F, 0x100),
    }


class Stream:
    """What a terminal, or a file, gets."""

    encoding = "utf-8"

    def __init__(self, *, terminal: bool) -> None:
        self.text, self._terminal = "", terminal

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None: ...

    def isatty(self) -> bool:
        return self._terminal


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_shows_warnings_and_details_literally(terminal: bool) -> None:
    stream = Stream(terminal=terminal)
    with Progress(stream, episodes=10) as progress:  # type: ignore[arg-type]
        progress.take(PhaseChanged(phase="loading", detail=EVIL))
        progress.take(WarningRaised(message=EVIL))
    assert "]52;c" in stream.text
    assert "\x1b]52" not in stream.text
    assert harmful(stream.text, kept="\n\r\x1b") == []
