"""How the screens around demonstrations look; `--snapshot-update` takes new pictures, to be looked at."""

from __future__ import annotations

from typing import Any

from textual.pilot import Pilot

from llamagym_tui.demos import files as demo_files
from llamagym_tui.game.chat import assistant, system, user
from llamagym_tui.protocol.events import PhaseChanged, WarmStartProgressed
from tests import fakes
from tests.demos.test_files import a_demo
from tests.screens.conftest import MakeApp
from tests.screens.pictures import WIDE, at_sizes
from tests.screens.steps import sees


def record_some() -> None:
    """Forty episodes of three sources, one of them faulty."""
    path = demo_files.default_path("blackjack")
    for seed in range(40):
        total, won = 12 + seed % 8, (1.0, -1.0, -1.0, 1.0, 0.0)[seed % 5]
        hits = int(total < 17)
        why = "Too low to stand. " if seed % 4 == 0 and hits else ""
        messages = [
            system("Play well."),
            user(f"Your total: {total}. Usable ace: no. Dealer shows: {2 + seed % 9}."),
        ]
        messages += [assistant(f'{why}{{"action": {hits}}}')]
        demo_files.append(
            path,
            a_demo(
                messages=messages,
                actions=[hits if seed != 7 else 1 - hits],
                rewards=[won],
                episode_return=won,
                length=1,
                seed=seed,
                source=("human", "human", "model", "expert")[seed % 4],
                model="bundled" if seed % 4 == 2 else None,
                recorded_at=f"2026-01-{1 + seed % 28:02d}T12:{seed:02d}:00Z",
            ),
        )


@at_sizes(WIDE)
def test_human_table(snap_compare: Any, make_app: MakeApp, size: tuple[int, int]):
    async def settled(pilot: Pilot[None]) -> None:
        await pilot.press("h")
        await sees(pilot, "s  stick")
        await pilot.press("s")
        await sees(pilot, "you stick   won +1")
        await pilot.press("enter")
        await sees(pilot, "a key takes its action at once")

    assert snap_compare(make_app(fakes.FakeClient()), terminal_size=size, run_before=settled)


@at_sizes(WIDE)
def test_demonstrations(snap_compare: Any, make_app: MakeApp, size: tuple[int, int]):
    async def settled(pilot: Pilot[None]) -> None:
        await sees(pilot, "episode ")
        await pilot.press("d")
        await sees(pilot, "1 faulty")
        await pilot.press("down", "down", "down", "down")
        await sees(pilot, "line 5")

    record_some()
    assert snap_compare(make_app(), terminal_size=size, run_before=settled)


@at_sizes(WIDE)
def test_warm_start(snap_compare: Any, make_app: MakeApp, size: tuple[int, int]):
    async def settled(pilot: Pilot[None]) -> None:
        await sees(pilot, "episode ")
        await pilot.press("f")
        await sees(pilot, "refused")
        await pilot.press("down", "enter", "y")
        await sees(pilot, "requested")
        client.emit(
            PhaseChanged(phase="warm_starting", detail="loading TRL, which takes some seconds")
        )
        for step in range(30):
            client.emit(WarmStartProgressed(step=step + 1, steps=40, loss=2.5 * 0.9**step))
        await sees(pilot, "30 of 40")

    record_some()
    client = fakes.FakeClient()
    assert snap_compare(make_app(client), terminal_size=size, run_before=settled)
