"""A marked reply: by mouse or keys, and what takes it; and what is asked for is brought into view."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from llamagym_tui.protocol.commands import InspectTurn
from llamagym_tui.protocol.events import AnyEvent, PaceChanged, WatchChanged
from llamagym_tui.screens.conversation.view import MARK, ConversationView
from llamagym_tui.screens.inspector.inspector import InspectorScreen
from tests import fakes
from tests.screens.conftest import MakeApp
from tests.screens.steps import notices, reaches, rolling_out, sees, shown, until

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


async def test_a_click_marks_the_reply_of_the_turn_under_the_mouse(make_app: MakeApp):
    client = run()
    app = make_app(client)
    async with rolling_out(app, SIZE) as pilot:
        view = app.screen.query_one(ConversationView)
        row = next(y for y, line in enumerate(shown(pilot).splitlines()) if " 11  " in line)
        await pilot.click(offset=(20, row))
        assert view.marked is not None
        assert (view.marked.episode, view.marked.turn) == (11, 0)
        assert len(marked_rows(shown(pilot))) == 1
        await sees(pilot, "enter unfolds, i inspects, K keeps, end unmarks")
        await pilot.press("enter")
        await sees(pilot, "enter folds, i inspects, K keeps, end unmarks")
        await pilot.press("enter", "end")
        client.emit(PaceChanged(turn_s=1.5))
        await sees(pilot, "11.0 so hit")
        row = next(y for y, line in enumerate(shown(pilot).splitlines()) if "11.0" in line)
        for above, what in ((1, "observation"), (0, "reply"), (-1, "action")):
            app.screen.query_one(ConversationView).mark(None)
            await pilot.click(offset=(20, row - above))
            assert view.marked is not None, what
            assert (view.marked.episode, view.marked.turn) == (11, 0), what
        assert len(marked_rows(shown(pilot))) == 4, "all of its turn has the bar"
        await sees(pilot, " i inspects, K keeps")


async def test_keys_mark_replies_and_scroll_no_further_than_shows_them(make_app: MakeApp):
    app = make_app(run())
    async with rolling_out(app, SIZE) as pilot:
        view = app.screen.query_one(ConversationView)
        seen = []
        for key in "kkkkkkjj":
            await pilot.press(key)
            assert view.marked is not None
            seen.append(view.marked.episode)
            assert len(marked_rows(shown(pilot))) == 1
        assert seen == [12, 11, 10, 9, 8, 7, 8, 9]
        await pilot.press(*"jjjj")
        assert view.marked is not None
        assert view.marked.episode == 12, "there is none after it"
        await pilot.press("escape")
        assert view.marked is None
        assert view.following
        assert not marked_rows(shown(pilot))


async def test_the_mark_stays_on_its_reply_while_others_come_and_goes_with_it(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("llamagym_tui.state.transcript.MAX_ENTRIES", 512)
    client = run()
    app = make_app(client)
    async with rolling_out(app, SIZE) as pilot:
        view = app.screen.query_one(ConversationView)
        await pilot.press("k", "k")
        before = marked_rows(shown(pilot))
        client.emit(*hands(*range(20, 60)))
        await sees(pilot, "enter unfolds, i inspects")
        await until(pilot, lambda: len(view.entries) > 200, "more hands")
        assert marked_rows(shown(pilot)) == before
        client.emit(*hands(*range(100, 300)))
        await until(pilot, lambda: view.marked is None, "its entry is gone")


async def test_what_is_marked_is_inspected_and_kept(make_app: MakeApp):
    client = run()
    app = make_app(client)
    async with rolling_out(app, SIZE) as pilot:
        await pilot.press("k", "k", "k")
        await pilot.press("K")
        await until(
            pilot, lambda: any("Episode 10 " in each for each in notices(app)), "it is kept"
        )
        await pilot.press("K")
        assert len([each for each in notices(app) if "is kept" in each]) == 1, "once"
        await pilot.press("i")
        await reaches(pilot, InspectorScreen)
        assert client.sent[-1] == InspectTurn(episode=10, turn=0)
        await pilot.press("escape", "escape", "K")
        await until(pilot, lambda: any("Episode 12 " in each for each in notices(app)), "the last")


@pytest.mark.parametrize("key", ["b", pytest.param("B", marks=pytest.mark.slow)])
async def test_an_episode_that_is_asked_for_is_shown_from_its_beginning(
    make_app: MakeApp, key: str
):
    client = run(*hands(*range(20, 60)))
    client.confirms = False
    app = make_app(client)
    kind = "best" if key == "b" else "worst"
    async with rolling_out(app, SIZE) as pilot:
        view = app.screen.query_one(ConversationView)
        await pilot.press("home", key)
        assert not view.following
        client.emit(WatchChanged(kind=kind, env=0), *hands(900, turns=30))  # type: ignore[arg-type]
        await sees(pilot, " 900  ")
        rows = shown(pilot).splitlines()
        assert any(f"the {kind} episode of the last batch" in row for row in rows[2:4])
        await pilot.press("end")
        await sees(pilot, "·30 ")
        assert view.following
        client.emit(WatchChanged(kind=kind, env=0), *hands(901, turns=30))  # type: ignore[arg-type]
        await until(pilot, lambda: "episode=901" in repr(view.entries[-1]), "the other one")
        await until(pilot, lambda: view.following, "its end is followed")
