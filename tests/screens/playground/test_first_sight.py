"""What is understood at first sight: one line in the agent's words, and three figures or all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace
from textual.widgets._toast import Toast

from llamagym_tui.protocol.events import AnyEvent
from tests import fakes
from tests.screens.conftest import MakeApp
from tests.screens.map_events import blackjack, hitting
from tests.screens.pictures import SMALL, WIDE, at_sizes
from tests.screens.steps import sees, until, widget_text

WORDS = "loses 6 chips in 100 hands (random 40, best 5)"
SIZES = at_sizes(SMALL, and_slowly=(WIDE, (160, 45)))


def described(run: Iterator[AnyEvent], words: str = WORDS, *, update: int = 12) -> list[AnyEvent]:
    counted = [
        replace(event, words=words)
        for event in fakes.learning(8)
        if isinstance(event, fakes.EpisodesCounted)
    ]
    return [*run, *counted, fakes.UpdateFinished(update=update, episodes=1024, stats=fakes.STATS)]


@SIZES
async def test_one_line_says_in_the_agents_words_how_it_plays(
    make_app: MakeApp, size: tuple[int, int]
):
    async with make_app(fakes.FakeClient(described(blackjack(16.5)))).run_test(size=size) as pilot:
        await sees(pilot, "loses 6 chips")
        [line] = [each for each in pilot.app.screen.query("#first-sight") if each.size.height]
        told = " ".join(widget_text(line).split())
        assert told == f"{WORDS}; plays like basic strategy in 244 of 280 hands"


@SIZES
async def test_a_map_of_an_earlier_update_is_told_as_such_until_the_next_one(
    make_app: MakeApp, size: tuple[int, int]
):
    client = fakes.FakeClient(described(blackjack(16.5), update=15))
    async with make_app(client).run_test(size=size) as pilot:
        await sees(pilot, "loses 6 chips")
        [line] = [each for each in pilot.app.screen.query("#first-sight") if each.size.height]
        told = " ".join(widget_text(line).split())
        assert told == f"{WORDS}; plays like basic strategy in 244 of 280 hands (3 updates ago)"
        client.emit(hitting(16.5, update=15))
        await until(pilot, lambda: "ago)" not in widget_text(line), "the present map")


async def test_a_run_whose_returns_are_not_put_in_words_has_no_line(make_app: MakeApp):
    async with make_app(fakes.FakeClient(fakes.demo_run())).run_test(size=(120, 34)) as pilot:
        await sees(pilot, "parse fail")
        assert not pilot.app.screen.query_one("#first-sight").display


@pytest.mark.parametrize("size", [(80, 24), (120, 34)])
async def test_a_notice_covers_no_figure(make_app: MakeApp, size: tuple[int, int]):
    app = make_app(fakes.FakeClient(described(blackjack())))
    async with app.run_test(size=size, notifications=True) as pilot:
        await sees(pilot, "loses 6 chips")
        app.notify("A long notice. " * 10, timeout=60)
        await until(pilot, lambda: app.screen.query(Toast), "the notice")
        await pilot.pause()
        notice = app.screen.query_one(Toast).region
        assert notice.area
        for figures in app.screen.query("#first-sight, #figures, #returns"):
            assert not notice.overlaps(figures.region), figures
