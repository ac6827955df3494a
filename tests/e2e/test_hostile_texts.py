"""No text of a stranger's run steers the terminal: every byte that comes out of a pseudo-terminal is looked at."""

from __future__ import annotations

import os
import re
import signal
import sys
import termios
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("pty")

from tests.app.terminal_app import TerminalApp
from tests.e2e.hostile_run import Texts, write_demonstrations, write_run
from tests.protocol.test_literal import harmful

SIZES = ((24, 80), (34, 120), (20, 60))
"""Rows and columns."""
OWN = re.compile(
    r"\x1b\[(\d{0,3}(;\d{0,3})*)?[mH]"  # colours, places
    r"|\x1b\[\?(7|25|100[0-6]|1015|1016|1049|2004|2026|2048)[hl]|\x1b\[\?(2026|2048)\$p"  # modes
    r"|\x1b\[>\d\d?u|\x1b\[<u|\x1b\]22;[a-z-]+\x07"  # keyboard, shape of the pointer
)
"""The control sequences that Textual emits."""
PAGES = 120
"""Pages of a conversation that are looked at, at most."""
MARKUP = "38;2;1;2;3"
"""What the colour in the markup of a text would be."""
DOWN, RIGHT, PAGE_UP, HOME, END, ESCAPE = "\x1b[B", "\x1b[C", "\x1b[5~", "\x1b[H", "\x1b[F", "\x1b"
WALK = (
    *(END, "v", "v", "m", DOWN, DOWN, "m", "g", DOWN, "o", "g", "?", "?", "i", DOWN, DOWN, "i"),
    *(
        ("/", "search;"),
        "9",
        "0",
        "\r",
        "n",
        ESCAPE,
        ("o", " RUNS "),
        " ",
        DOWN,
        ("c", "COMPARE"),
        DOWN,
    ),
    *((ESCAPE, " RUNS "), "s", (ESCAPE, "REPLAY"), HOME, RIGHT, RIGHT),
)
"""Keys through every screen of a replay, some with what has to come before the next one."""
SHORT_WALK = (END, PAGE_UP, PAGE_UP, "m", "m", ("o", " RUNS "), (ESCAPE, "REPLAY"))
SLOW_TO_OPEN = "mgi?ods"
"""Keys that open a screen, or leave it: the next key is for the one that is there then."""
DEMONSTRATIONS = (("d", "DEMONSTRATIONS"), *[DOWN] * 12, (ESCAPE, "REPLAY"))
"""Only where the agent is one that ships: a stranger's is refused."""


def settled(app: TerminalApp, patience_s: float = 0.4) -> bool:
    """Wait until something was painted and nothing more is; whether anything was."""
    since, end = len(app.output), time.monotonic() + patience_s
    while len(app.read()) == since and time.monotonic() < end:
        pass
    painted = len(app.output) > since
    while len(app.output) < len(app.read(0.1)):
        pass
    return painted


def walked(app: TerminalApp, keys: Sequence[str | tuple[str, str]]) -> None:
    for step in keys:
        key, awaited = step if isinstance(step, tuple) else (step, "")
        since = len(app.output)
        app.types(key)
        if awaited:
            app.sees(awaited, since)
        if key in (
            ESCAPE,
            "o",
        ):  # a key right after it would be a part of its sequence, or come before runs are read
            time.sleep(0.3 if key == ESCAPE else 1.0)
        settled(app, 3.0 if key in SLOW_TO_OPEN else 0.4)
        assert app.process.poll() is None, f"the app ended after {key!r}:\n{app.text()[-3000:]}"


def resized(app: TerminalApp, size: tuple[int, int]) -> None:
    termios.tcsetwinsize(app.ours, size)
    os.kill(app.process.pid, signal.SIGWINCH)
    settled(app)


def leaks(output: bytes) -> list[str]:
    """What stands in the bytes that Textual does not emit, each with what is around it."""
    text = output.decode("utf-8", "surrogateescape")
    rest = OWN.sub("", text)
    bad = [at for at, char in enumerate(rest) if harmful(char, kept="\r\n")]
    return [repr(rest[max(0, at - 40) : at + 40]) for at in bad] + re.findall(
        f".{{20}}{MARKUP}.{{20}}", text
    )


def session(
    folder: Path, seed: int, until: int, *, short: bool = False
) -> tuple[int, set[str], list[str]]:
    """A stranger's run walked through, and paged back: its texts, the numbers of those that were seen, what leaked."""
    texts = Texts(seed, first=seed * 2000)
    first = texts.count
    name = os.fsdecode(
        f"{texts.next()}".replace("/", "_").replace("\0", "").encode()[:200] + b"\xff"
    )
    is_shipped = bool(seed % 2)
    agent = (
        "blackjack" if is_shipped else texts.next()
    )  # the same of both runs: other games are not compared
    run = write_run(folder / "runs" / name, texts, first + until - 40, agent=agent)
    write_demonstrations(folder / "demos" / "blackjack.jsonl", texts, 12)
    write_run(folder / "runs" / "other", texts, texts.count, agent=agent)
    with TerminalApp(
        folder, command=[sys.executable, "-m", "llamagym_tui", "replay", str(run)]
    ) as app:
        app.sees("REPLAY")
        for size in SIZES[: 1 if short else None]:
            resized(app, size)
            walked(app, SHORT_WALK if short else WALK + (DEMONSTRATIONS if is_shipped else ()))
        resized(app, SIZES[1])
        walked(app, [END])
        for _ in range(0 if short else PAGES):
            app.types(PAGE_UP)
            if not settled(app, 3.0):
                break
        app.types("q")
        settled(app)
        app.types("y")
        assert app.ends() == 0
        seen = set(re.findall(r"9\d{5}", OWN.sub("", app.output.decode("utf-8", "replace"))))
        return texts.count - first, seen, leaks(app.output)


def test_a_leak_of_each_kind_is_found():
    own = "\x1b[38;2;200;1;2mhello\x1b[0m\x1b[12;3H\x1b[?2026h\r\n"
    assert leaks(own.encode()) == []
    evil = (
        "\x1b[900001m",
        "\x1b[2J",
        "\x1b]52;c;x",
        "\x9b3m",
        "\u202e",
        "\u200b",
        "\x07",
        "\x1bc",
        "\x1b[?1047l",
    )
    assert [len(leaks((own + text).encode())) for text in evil] == [1] * len(evil)
    assert len(leaks(f"{own}{'x' * 20}\x1b[{MARKUP}m{'x' * 40}".encode())) == 1


def test_no_text_of_a_strangers_run_steers_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLORTERM", "truecolor")
    count, seen, found = session(tmp_path, 1, 100, short=True)
    assert found[:5] == []
    assert count >= 100
    assert len(seen) >= 10


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(2, 12))
def test_no_text_of_ten_thousand_steers_the_terminal(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
):
    """Each of ten sessions has a thousand texts."""
    monkeypatch.setenv("COLORTERM", "truecolor")
    count, seen, found = session(tmp_path, seed, 1000)
    print(f"seed {seed}: {count} texts, {len(seen)} of them seen, {len(found)} leaks")
    assert found == []
    assert count >= 1000
    assert len(seen) >= 250
