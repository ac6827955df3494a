"""Takes the pictures of the README from the app itself, on a live run of the real trainer.

``python scripts/take_pictures.py --live 240`` trains that many seconds in a folder of its own and writes
``docs/pictures/playground.svg`` (160x45), ``playground-80x24.svg`` and ``human-table.svg``.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path

from textual.pilot import Pilot

from llamagym_tui.app import LlamaGymApp
from llamagym_tui.config import RunConfig

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "pictures"
LARGE, SMALL, TABLE = (160, 45), (80, 24), (100, 30)
START_S = 90.0
"""Seconds that the model has to load."""


async def until(pilot: Pilot[None], condition: Callable[[], bool], timeout_s: float) -> None:
    """Wait until something holds, or say why the picture cannot be taken."""
    for _ in range(int(timeout_s / 0.1)):
        if condition():
            return
        state = pilot.app.run_state  # type: ignore[attr-defined]
        if state.failure:
            raise SystemExit(f"No picture: {state.failure}")
        await pilot.pause(0.1)
    raise SystemExit(f"No picture: the run was not there within {timeout_s:.0f} s.")


async def take(live_s: float) -> None:
    """Play, and take the three pictures of one run."""
    seeds = count(11)
    app = LlamaGymApp(
        RunConfig(agent="blackjack", run_dir="data/run", seed=1),
        next_seed=lambda: next(seeds),
    )
    async with app.run_test(size=LARGE) as pilot:
        await until(pilot, lambda: app.run_state is not None and app.run_state.updates > 0, START_S)
        await pilot.pause(live_s)
        await until(pilot, lambda: app.run_state is not None and app.run_state.phase == "rolling_out", START_S)
        await pilot.pause(0.3)
        _save(app, "playground.svg")
        await pilot.resize_terminal(*SMALL)
        await pilot.pause(1.0)
        _save(app, "playground-80x24.svg")
        await pilot.resize_terminal(*TABLE)
        await pilot.press("h")
        await pilot.pause(2.0)
        await pilot.press("s")
        await pilot.pause(0.5)
        await pilot.press("enter")
        await pilot.pause(0.5)
        _save(app, "human-table.svg")
        await pilot.press("escape", "q", "y")
        await pilot.pause(2.0)


def _save(app: LlamaGymApp, name: str) -> None:
    svg = app.export_screenshot(title="llamagym-tui")
    PICTURES.mkdir(parents=True, exist_ok=True)
    (PICTURES / name).write_text(svg, encoding="utf-8")
    print(f"docs/pictures/{name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--live", type=float, default=60.0, metavar="SECONDS", help="seconds of training before")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        # A relative path is shown, so that the picture names no folder of this machine.
        os.chdir(folder)
        os.environ["LLAMAGYM_TUI_DATA"] = "data"
        os.environ["LLAMAGYM_TUI_CONFIG"] = "config"
        asyncio.run(take(options.live))


if __name__ == "__main__":
    main()
