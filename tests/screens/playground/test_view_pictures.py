"""How the drawing of the watched state, and the comparison of the modes, look; look before `--snapshot-update`."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from textual.pilot import Pilot

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.agents.frozen_lake import FrozenLakeAgent
from llamagym_tui.app.app import LlamaGymApp
from llamagym_tui.game.drawing import drawn, revealed
from llamagym_tui.protocol.events import (
    AnyEvent,
    ModeChanged,
    RunStarted,
    SettingsChanged,
    StateDrawn,
)
from llamagym_tui.screens.widgets.sizes import WIDE
from tests import fakes
from tests.screens.conftest import MakeApp
from tests.screens.pictures import SMALL_AND_SLOWLY_WIDE, WIDE_AND_SLOWLY_SMALL
from tests.screens.steps import is_drawn, sees, until

HANDS = SimpleNamespace(unwrapped=SimpleNamespace(dealer=[10, 6, 9], player=[10, 9]))
DRAWINGS = {
    "table": revealed(BlackjackAgent(), HANDS, (19, 10, 0), {}),
    "lake": drawn(FrozenLakeAgent(), None, 6),
}


async def drawn_whole(pilot: Pilot[None], app: LlamaGymApp) -> None:
    """Wait until the chart, where there is room for one, shows the newest returns."""
    if app.size.width >= WIDE:
        await until(pilot, lambda: is_drawn(app.screen, app.run_state))  # type: ignore[arg-type]


def run_with_drawing(drawing: StateDrawn) -> Iterator[AnyEvent]:
    """The run of the other pictures, its last state drawn."""
    for event in fakes.demo_run():
        yield replace(event, draws=True) if isinstance(event, RunStarted) else event
    yield drawing


def in_inference() -> Iterator[AnyEvent]:
    """A run that learnt for a while, and is played at a lower temperature."""
    yield from fakes.opening_events()
    for event in fakes.learning(16):
        yield replace(event, actions=[110, 76]) if hasattr(event, "returns") else event
    yield ModeChanged(mode="inference")
    yield SettingsChanged(changes={"generation.temperature": 0.5})
    changes = {"mode": "inference"}
    yield fakes.counted([0.94, -1.0, 0.94, -1.0, 0.0] * 24, 2168, actions=[130, 51], **changes)
    hand = [("Your total: 15. Usable ace: no. Dealer shows: 10.", '{"action": 0}', "json")]
    yield from fakes.hand(2170, hand, 1.0, mode="inference")


@SMALL_AND_SLOWLY_WIDE
@pytest.mark.parametrize("drawing", DRAWINGS)
def test_the_watched_state(
    snap_compare: Any, make_app: MakeApp, size: tuple[int, int], drawing: str
):
    async def settled(pilot: Pilot[None]) -> None:
        await sees(pilot, "20,494 ")
        await until(pilot, lambda: app.run_state.view.drawn is not None)
        if size[0] < WIDE:
            await pilot.press("v")
        await sees(pilot, "state · episode 20,494, turn 2")
        await drawn_whole(pilot, app)

    text, _, grounds = DRAWINGS[drawing]
    state = StateDrawn(episode=20_494, turn=1, text=text, grounds=list(grounds))
    app = make_app(fakes.FakeClient(run_with_drawing(state)))
    assert snap_compare(app, terminal_size=size, run_before=settled)


@WIDE_AND_SLOWLY_SMALL
def test_the_modes_side_by_side(snap_compare: Any, make_app: MakeApp, size: tuple[int, int]):
    async def settled(pilot: Pilot[None]) -> None:
        await sees(pilot, "2,170 ")
        await sees(pilot, "71.8%")
        await drawn_whole(pilot, app)

    app = make_app(fakes.FakeClient(in_inference()))
    assert snap_compare(app, terminal_size=size, run_before=settled)
