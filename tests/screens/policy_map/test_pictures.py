"""How the policy map looks; `pytest … --snapshot-update` takes new pictures: look at them."""

from __future__ import annotations

from typing import Any

from textual.pilot import Pilot

from tests import fakes
from tests.screens.conftest import MakeApp
from tests.screens.map_events import blackjack, lake, updated
from tests.screens.pictures import SMALL_AND_SLOWLY_WIDE, WIDE_AND_SLOWLY_SMALL
from tests.screens.steps import sees


@SMALL_AND_SLOWLY_WIDE
def test_blackjack(snap_compare: Any, make_app: MakeApp, size: tuple[int, int]):
    client = fakes.FakeClient(blackjack())

    async def settled(pilot: Pilot[None]) -> None:
        await sees(pilot, "rolling out")
        await pilot.press("g")
        await sees(pilot, "agrees on 224")
        await sees(pilot, "live")
        client.emit(*updated(16.5, 13))
        await sees(pilot, "agrees on 244")
        await pilot.press(*["down"] * 5, *["right"] * 5)
        await sees(pilot, "Your total: 16. Usable ace: no. Dealer shows: 7.")
        await sees(pilot, "agrees, optimal is hit")

    assert snap_compare(make_app(client), terminal_size=size, run_before=settled)


@WIDE_AND_SLOWLY_SMALL
def test_the_lake(snap_compare: Any, make_app: MakeApp, size: tuple[int, int]):
    async def settled(pilot: Pilot[None]) -> None:
        await sees(pilot, "rolling out")
        await pilot.press("g")
        await sees(pilot, "agrees on 8 of 11")
        await sees(pilot, "live")
        await pilot.press("down", "down", "right")
        await sees(pilot, "agrees, optimal is down or right")

    assert snap_compare(make_app(fakes.FakeClient(lake())), terminal_size=size, run_before=settled)


def test_in_the_colours_of_the_terminal(snap_compare: Any, make_app: MakeApp):
    async def settled(pilot: Pilot[None]) -> None:
        pilot.app.theme = "ansi-dark"
        await sees(pilot, "rolling out")
        await pilot.press("g")
        await sees(pilot, "agrees on 224 of 280")
        await sees(pilot, "live")

    assert snap_compare(
        make_app(fakes.FakeClient(blackjack())), terminal_size=(120, 34), run_before=settled
    )
