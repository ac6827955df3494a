"""How the screens look. `pytest tests/screens --snapshot-update` takes new pictures; look at them before you commit."""

from __future__ import annotations

from typing import Any

from textual.pilot import Pilot

from tests import fakes
from tests.screens.conftest import MakeApp
from tests.screens.pictures import at_sizes
from tests.screens.steps import is_drawn, sees, until


@at_sizes((60, 20), (80, 24), (160, 45))
def test_playground(snap_compare: Any, make_app: MakeApp, size: tuple[int, int]):
    async def settled(pilot: Pilot[None]) -> None:
        await sees(pilot, "episode 20,494")
        await sees(pilot, "update")
        if size[0] >= 120:
            # The chart is drawn now and then: a slow machine would be pictured with the curve of a while ago.
            await until(pilot, lambda: is_drawn(app.screen, app.run_state))

    app = make_app(fakes.FakeClient(fakes.demo_run()))
    assert snap_compare(app, terminal_size=size, run_before=settled)


def test_the_death_of_the_trainer(snap_compare: Any, make_app: MakeApp):
    async def settled(pilot: Pilot[None]) -> None:
        await sees(pilot, "episode 20,494")
        client.die("The trainer died (killed by SIGKILL). Its log is /runs/demo/trainer.log.")
        await sees(pilot, "NO TRAINER")
        await sees(pilot, "r Restart")

    client = fakes.FakeClient(fakes.demo_run())
    assert snap_compare(make_app(client), terminal_size=(80, 24), run_before=settled)
