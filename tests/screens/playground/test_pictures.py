"""How the screens look. `pytest tests/screens --snapshot-update` takes new pictures; look at them before you commit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import structs
from textual.pilot import Pilot

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.game.drawing import drawn
from llamagym_tui.protocol.events import (
    ActionsProbed,
    AnyEvent,
    ObservationShown,
    Progressed,
    RunStarted,
    StateDrawn,
)
from tests import fakes
from tests.screens import map_events
from tests.screens.conftest import MakeApp
from tests.screens.pictures import SMALL, WIDE, at_sizes
from tests.screens.steps import is_drawn, sees, until


def run_with_all() -> Iterator[AnyEvent]:
    """The run of the other pictures with its map, a drawing and how far the next update is."""
    agent = BlackjackAgent()
    for event in fakes.demo_run():
        is_last = isinstance(event, ObservationShown) and event.episode == 20_494
        if is_last:
            text, grounds = drawn(agent, None, (12, 10, 0))
            yield StateDrawn(episode=20_494, turn=0, text=text, grounds=list(grounds))
        yield structs.replace(event, draws=True) if isinstance(event, RunStarted) else event
        if isinstance(event, RunStarted):
            yield map_events.layout_of(agent)
            yield map_events.hitting(19.5, update=0)
        if is_last:
            names, shares = ["stick", "hit"], [0.2875, 0.7125]
            yield ActionsProbed(episode=20_494, turn=0, names=names, shares=shares)
    yield map_events.hitting(14.5, update=40)
    yield Progressed(doing="playing", done=812, total=1024, left_s=2.0)


async def settled(pilot: Pilot[None]) -> None:
    await sees(pilot, "20,494 ")
    await sees(pilot, "812 of 1,024")
    app = pilot.app
    if app.size.height >= 24:
        # The chart is drawn now and then: a slow machine would be pictured with the curve of a while ago.
        await until(pilot, lambda: is_drawn(app.screen, getattr(app, "run_state", None)))


@at_sizes(SMALL, WIDE)
def test_playground(snap_compare: Any, make_app: MakeApp, size: tuple[int, int]):
    app = make_app(fakes.FakeClient(run_with_all()))
    assert snap_compare(app, terminal_size=size, run_before=settled)
