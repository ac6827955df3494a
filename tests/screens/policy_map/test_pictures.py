"""How the policy map looks; `pytest … --snapshot-update` takes new pictures: look at them."""

from __future__ import annotations

from typing import Any

from textual.pilot import Pilot

from tests import fakes
from tests.screens.conftest import MakeApp
from tests.screens.map_events import blackjack, updated
from tests.screens.pictures import WIDE
from tests.screens.steps import sees


def test_blackjack(snap_compare: Any, make_app: MakeApp):
    client = fakes.FakeClient(blackjack())

    async def settled(pilot: Pilot[None]) -> None:
        await sees(pilot, "episode ")
        await pilot.press("g")
        await sees(pilot, "in 224 of 280")
        client.emit(*updated(16.5, 13))
        await sees(pilot, "in 244 of 280")
        await pilot.press(*["down"] * 5, *["right"] * 5)
        await sees(pilot, "Your total: 16. Usable ace: no. Dealer shows: 7.")
        await sees(pilot, "the best play: hit")

    assert snap_compare(make_app(client), terminal_size=WIDE, run_before=settled)
