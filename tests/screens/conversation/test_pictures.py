"""How the token inspector looks; `pytest … --snapshot-update` takes new pictures: look at them."""

from __future__ import annotations

from typing import Any

from textual.pilot import Pilot

from tests.screens.conftest import MakeApp
from tests.screens.conversation.test_inspector import LAST
from tests.screens.inspected import InspectedClient, told
from tests.screens.pictures import WIDE
from tests.screens.steps import sees, stands_still


async def asked(pilot: Pilot[None]) -> None:
    """Wait until the inspector has asked for the last reply."""
    await sees(pilot, "Your total: 12")
    await stands_still(pilot)
    await pilot.press("i")
    await sees(pilot, "requested; the trainer answers")


def test_a_reply_token_by_token(snap_compare: Any, make_app: MakeApp):
    client = InspectedClient(confirms=False)

    async def settled(pilot: Pilot[None]) -> None:
        await asked(pilot)
        client.emit(told(LAST, 0))
        await sees(pilot, "token 2 of 4")

    assert snap_compare(make_app(client), terminal_size=WIDE, run_before=settled)
