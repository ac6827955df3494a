"""Takes the pictures of the documents from the app itself, on a live run of the real trainer.

``python scripts/take_pictures.py --live 240`` trains that many seconds in a folder of its own and writes the pictures
of `PICTURES` into ``docs/pictures``; ``--model smollm2`` takes them of another model.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import NamedTuple

from textual.pilot import Pilot

from llamagym_tui.app.app import LlamaGymApp
from llamagym_tui.setup.run_config import run_config

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "pictures"
SETTLED_S = 3.0
"""Seconds in which a screen is drawn and the trainer answers it."""
START_S = 90.0
"""Seconds in which the model must have been loaded."""


class Picture(NamedTuple):
    name: str
    size: tuple[int, int]
    """Columns and lines."""
    keys: tuple[str, ...] = ()
    """Pressed in the playground before it is taken."""
    leave: tuple[str, ...] = ()
    """Pressed after it, back to the playground."""


PICTURES = [
    Picture("playground", (160, 45)),
    Picture("policy-map", (120, 30), ("g",), ("escape",)),
    Picture("inspector", (110, 30), ("space", "b", "i"), ("escape", "space")),
]


async def until(pilot: Pilot[None], condition: Callable[[], bool], timeout_s: float) -> None:
    """Wait until a condition holds; end the program with the reason if it does not."""
    for _ in range(int(timeout_s / 0.1)):
        if condition():
            return
        state = pilot.app.run_state  # type: ignore[attr-defined]
        if state.failure:
            raise SystemExit(f"No picture: {state.failure}")
        await pilot.pause(0.1)
    raise SystemExit(f"No picture: the run was not there within {timeout_s:.0f} s.")


async def take(live_s: float, model: str) -> None:
    seeds = count(11)
    config = run_config("blackjack", {"run_dir": "data/run", "seed": 1, "model": model})
    app = LlamaGymApp(config, next_seed=lambda: next(seeds))
    async with app.run_test(size=PICTURES[0].size) as pilot:
        await until(pilot, lambda: app.run_state is not None and app.run_state.updates > 0, START_S)
        await pilot.pause(live_s)
        await until(
            pilot,
            lambda: app.run_state is not None and app.run_state.phase == "rolling_out",
            START_S,
        )
        for picture in PICTURES:
            await pilot.resize_terminal(*picture.size)
            await pilot.pause(SETTLED_S)
            for key in picture.keys:
                await pilot.press(key)
                await pilot.pause(SETTLED_S)
            save(app, picture.name)
            await pilot.press(*picture.leave)
        await pilot.press("q", "y")
        await pilot.pause(SETTLED_S)


def save(app: LlamaGymApp, name: str) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{name}.svg").write_text(
        app.export_screenshot(title="llamagym-tui"), encoding="utf-8"
    )
    print(f"docs/pictures/{name}.svg")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--live", type=float, default=60.0, metavar="SECONDS", help="seconds of training before"
    )
    parser.add_argument("--model", default="bundled", help="as of train; it is on this machine")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        # The pictures show a relative path instead of a folder of this machine.
        os.chdir(folder)
        # Nor do their colours depend on the terminal in which they are taken.
        os.environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
        os.environ["LLAMAGYM_TUI_DATA"] = "data"
        os.environ["LLAMAGYM_TUI_CONFIG"] = "config"
        asyncio.run(take(options.live, options.model))


if __name__ == "__main__":
    main()
