"""A marked reply: by mouse or keys, and what takes it; and what is asked for is brought into view."""

from __future__ import annotations

from collections.abc import Iterator

from llamagym_tui.protocol.commands import InspectTurn
from llamagym_tui.protocol.events import AnyEvent
from llamagym_tui.screens.conversation.inspector import InspectorScreen
from llamagym_tui.screens.conversation.view import ConversationView
from llamagym_tui.screens.widgets.lines import MARK
from tests import fakes
from tests.screens.conftest import MakeApp
from tests.screens.steps import reaches, rolling_out, sees, shown

SIZE = (100, 26)
SEEN = "Your total: 12. Usable ace: no. Dealer shows: 10."


def hands(*numbers: int, turns: int = 1) -> Iterator[AnyEvent]:
    """Hands of which each reply names the hand and the turn."""
    for number in numbers:
        replies = [(SEEN, f"{number}.{turn} so hit", "keyword") for turn in range(turns)]
        yield from fakes.hand(number, replies, 1.0)


def run(*more: AnyEvent) -> fakes.FakeClient:
    return fakes.FakeClient([*fakes.opening_events(), *hands(*range(1, 13)), *more])


def marked_rows(text: str) -> list[str]:
    """The rows of a marked turn, without the scroll bar."""
    return [row[:-3].rstrip() for row in text.splitlines() if MARK in row]


async def test_clicks_and_keys_mark_a_turn_that_is_then_shown_in_full(make_app: MakeApp):
    app = make_app(run())
    async with rolling_out(app, SIZE) as pilot:
        view = app.screen.query_one(ConversationView)
        row = next(y for y, line in enumerate(shown(pilot).splitlines()) if "│11  " in line)
        await pilot.click(offset=(20, row))
        assert view.marked is not None
        assert (view.marked.episode, view.marked.turn) == (11, 0)
        await sees(pilot, "i inspects, end unmarks")
        await sees(pilot, "model   11.0 so hit")
        seen = []
        for key in "kkkjjjj":
            await pilot.press(key)
            seen.append(view.marked.episode)
            assert len(marked_rows(shown(pilot))) == 1
        assert seen == [10, 9, 8, 9, 10, 11, 12]
        await pilot.press("j")
        assert view.marked.episode == 12, "there is none after it"
        await pilot.press("escape")
        assert view.marked is None
        assert view.following
        assert not marked_rows(shown(pilot))


async def test_what_is_marked_is_inspected(make_app: MakeApp):
    client = run()
    app = make_app(client)
    async with rolling_out(app, SIZE) as pilot:
        await pilot.press("k", "k", "k")
        await pilot.press("i")
        await reaches(pilot, InspectorScreen)
        assert client.sent[-1] == InspectTurn(episode=10, turn=0)
