"""Time to the first frame of the playground and of an empty Textual app, each in a pseudo-terminal.

The two run in turn; what counts is the ratio, printed last: the median and the range of those of each round.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.terminal import Terminal
from benchmarks.timing import alternate, ratios, spread

EMPTY = """
from textual.app import App
from textual.widgets import Static
class Empty(App):
    def compose(self):
        yield Static("first-frame")
Empty().run()
"""
PLAYGROUND = ["-m", "llamagym_tui", "blackjack"]
PAINTED = b"All keys"
"""In the last lines that the playground paints."""


def main(
    runs: Annotated[int, typer.Option(help="Starts of each, after one that does not count.")] = 7,
) -> None:
    with environment() as env:
        subjects = {
            "empty": lambda: frame_s(["-c", EMPTY], b"first-frame", env),
            "playground": lambda: frame_s(PLAYGROUND, PAINTED, env),
        }
        times = alternate(subjects, runs)
    for name, values in times.items():
        print(
            f"{name:<11} median {spread(values).median:.3f} s   all {' '.join(f'{value:.3f}' for value in values)}"
        )
    print(f"ratio {ratios(times['playground'], times['empty']):.2f}")


@contextmanager
def environment() -> Iterator[dict[str, str]]:
    """Variables of an installed program: modules are compiled at its first start, and its data folder is empty."""
    with tempfile.TemporaryDirectory() as data:
        env = {**os.environ, "LLAMAGYM_TUI_DATA": data, "PYTHONPYCACHEPREFIX": f"{data}/compiled"}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        yield env


def frame_s(
    arguments: list[str], needle: bytes, env: dict[str, str], cwd: Path | None = None
) -> float:
    """Seconds from the start of Python until its terminal shows a text.

    Args:
        arguments: of Python.
        needle: the text.
        env: variables.
        cwd: the checkout whose code runs; None: this one.
    """
    with Terminal([sys.executable, *arguments], env, cwd) as terminal:
        terminal.wait(lambda painted: needle in painted)
        return terminal.elapsed_s()


if __name__ == "__main__":
    typer.run(main)
