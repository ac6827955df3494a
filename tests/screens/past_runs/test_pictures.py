"""How home, past runs, a comparison and a replay look."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from textual.pilot import Pilot

from llamagym_tui.app.app import LlamaGymApp
from llamagym_tui.protocol.events import RunFinished
from llamagym_tui.screens.past_runs.compare import CompareScreen
from llamagym_tui.screens.past_runs.home import HomeScreen
from llamagym_tui.screens.past_runs.replay import ReplayScreen
from llamagym_tui.screens.past_runs.run_table import RunTable
from llamagym_tui.settings import PPOConfig
from tests import fakes
from tests.recorded_run import record
from tests.screens.pictures import WIDE, at_sizes
from tests.screens.steps import is_drawn, sees, until

END = RunFinished(episodes=20_480, env_steps=0, updates=40, elapsed_s=0.0)
NOON = 1_767_355_200


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three runs in a folder of the same name everywhere; no model but the bundled one is here."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LLAMAGYM_TUI_DATA", "data")
    monkeypatch.setattr(
        "llamagym_tui.screens.past_runs.home.is_here", lambda name: name == "bundled"
    )
    events = [
        msgspec.structs.replace(event, at_s=0.4 * at)
        for at, event in enumerate(fakes.demo_run(batches=160))
    ]
    of_a_run: dict[str, dict[str, Any]] = {
        "20260102-120000-blackjack": {"checkpoint": True},
        "20260102-130000-blackjack": {"ppo": PPOConfig(lr=1e-3, epochs=3), "n_envs": 64},
        "20260102-140000-frozen_lake": {},
    }
    for hours, (name, settings) in enumerate(of_a_run.items()):
        told = [*events[: len(events) - 80 * hours], *([END] if hours == 0 else [])]
        folder = record(Path("data/runs") / name, told, **settings)
        os.utime(folder / "config.json", (NOON + 3600 * hours,) * 2)


def at_home() -> LlamaGymApp:
    return LlamaGymApp(client_factory=fakes.FakeClient)


def all_found(pilot: Pilot[None]) -> bool:
    """Whether all that is looked for in threads has been found."""
    screen = pilot.app.screen
    rows = [row for runs in screen.query(RunTable) for row in runs.shown]
    return len(rows) == 3 and isinstance(screen, HomeScreen) and bool(screen.here)


async def listed(pilot: Pilot[None]) -> None:
    await until(pilot, lambda: all_found(pilot))


@at_sizes(WIDE)
def test_home(snap_compare: Any, size: tuple[int, int]):
    assert snap_compare(at_home(), terminal_size=size, run_before=listed)


@at_sizes(WIDE)
def test_two_runs_compared(snap_compare: Any, size: tuple[int, int]):
    async def settled(pilot: Pilot[None]) -> None:
        await listed(pilot)
        pilot.app.screen.query_one(RunTable).focus()
        await pilot.press("down", "space", "down", "c")
        await until(
            pilot,
            lambda: isinstance(pilot.app.screen, CompareScreen) and is_drawn(pilot.app.screen),
        )

    assert snap_compare(at_home(), terminal_size=size, run_before=settled)


@at_sizes(WIDE)
def test_replay(snap_compare: Any, size: tuple[int, int]):
    async def settled(pilot: Pilot[None]) -> None:
        screen = pilot.app.screen
        assert isinstance(screen, ReplayScreen)
        await until(pilot, lambda: screen.player.recording.complete)
        await pilot.press("space", "end", "left")
        await sees(pilot, "‖ 1×")
        state = screen.player.state
        await until(pilot, lambda: pilot.app.run_state is state)
        if size[0] >= 120:
            await until(pilot, lambda: is_drawn(screen, state))

    app = LlamaGymApp(replay=Path("data/runs/20260102-120000-blackjack"))
    assert snap_compare(app, terminal_size=size, run_before=settled)
