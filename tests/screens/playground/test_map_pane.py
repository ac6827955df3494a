"""The policy map beside the curve: where there is room for it, how old it is, and what has just changed."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.agents.frozen_lake import FrozenLakeAgent
from llamagym_tui.agents.taxi import TaxiAgent
from llamagym_tui.protocol.events import (
    ObservationShown,
    PaceChanged,
    UpdateFinished,
)
from llamagym_tui.screens.playground.panes import LiveGrid, MapPane
from llamagym_tui.screens.policy_map.drawing import map_line, places_for
from llamagym_tui.screens.policy_map.film import fill_of
from llamagym_tui.screens.policy_map.mapped_policy import MappedPolicy, Spot
from llamagym_tui.screens.policy_map.screen import NOWHERE, PolicyMapScreen
from tests import fakes
from tests.screens import map_events
from tests.screens.conftest import MakeApp
from tests.screens.steps import reaches, rolling_out, sees, shown, until

BLACKJACK = map_events.layout_of(BlackjackAgent())
LAKE = map_events.layout_of(FrozenLakeAgent())


@pytest.mark.parametrize(
    ("size", "is_there"),
    [((120, 34), True), ((120, 21), False), ((60, 40), False)],
)
async def test_the_map_stands_beside_the_curve_where_the_curve_keeps_its_rows(
    make_app: MakeApp, size: tuple[int, int], is_there: bool
):
    app = make_app(fakes.FakeClient(map_events.blackjack()))
    async with rolling_out(app, size) as pilot:
        await until(pilot, lambda: app.screen.query(MapPane) and app.run_state.mapped)
        pane = app.screen.query_one(MapPane)
        await until(pilot, lambda: bool(pane.region.area) == is_there)
        assert ("what it would do" in shown(pilot)) == is_there
        if is_there:
            assert app.screen.query_one("#returns").size.height >= 5


async def test_before_the_first_map_the_best_play_stands_there_dimmed(make_app: MakeApp):
    app = make_app(fakes.FakeClient([BLACKJACK]))
    async with app.run_test(size=(120, 34)) as pilot:
        await sees(pilot, "the best play, which the model is to learn")
        grid = app.screen.query_one(LiveGrid)
        assert grid.has_class("-ghost")
        assert grid.policy.count.agreeing == 280
        app._client.emit(
            *map_events.opening_events(1), BLACKJACK, map_events.hitting(16.5, update=1)
        )
        await sees(pilot, "244 of 280 like basic strategy")
        assert not grid.has_class("-ghost")


async def test_the_title_of_a_narrow_map_is_whole(make_app: MakeApp):
    app = make_app(fakes.FakeClient([BLACKJACK]))
    async with app.run_test(size=(80, 24)) as pilot:
        await sees(pilot, "what it would do · best play ")
        app._client.emit(
            *map_events.opening_events(1), BLACKJACK, map_events.hitting(16.5, update=1)
        )
        await sees(pilot, "what it would do · 244 of 280 ")


async def test_the_map_says_how_it_plays_and_a_click_opens_it_whole(make_app: MakeApp):
    client = fakes.FakeClient(map_events.blackjack())
    app = make_app(client)
    async with rolling_out(app, (120, 34)) as pilot:
        await sees(pilot, "224 of 280 like basic strategy ")
        client.emit(UpdateFinished(update=13, episodes=0, stats=fakes.STATS))
        client.emit(map_events.hitting(16.5, update=13))
        await sees(pilot, "244 of 280 like basic strategy ▲ 20")
        await pilot.click(LiveGrid, offset=(10, 3))
        await reaches(pilot, PolicyMapScreen)


def test_a_landmark_has_its_sign_and_its_ground_and_a_wall_is_a_line() -> None:
    policy = MappedPolicy(LAKE, None)
    pieces = {
        piece.spot: piece
        for y in range(5)
        for piece in map_line(policy, places_for(LAKE, 30, 5), y, fill_of)
    }
    hole, goal, ice = (pieces[Spot(0, *at)] for at in ((1, 1), (3, 3), (0, 0)))
    assert [each.text.strip() for each in (hole, goal, ice)] == ["O", "G", "·"]
    assert len({each.style.background for each in (hole, goal, ice)}) == 3
    taxi = map_events.layout_of(TaxiAgent())
    places = places_for(taxi, 18, 6)
    cells = [
        piece.text for piece in map_line(MappedPolicy(taxi, None), places, 1, fill_of) if piece.spot
    ]
    assert cells[1] == "· │"
    assert cells[2] == "·  "


async def test_the_map_shows_where_the_player_is_while_there_is_time_to_see_it(make_app: MakeApp):
    client = fakes.FakeClient(map_events.lake())
    app = make_app(client)
    async with rolling_out(app, (120, 34)) as pilot:
        await sees(pilot, "what it would do")
        grid = app.screen.query_one(LiveGrid)
        words = FrozenLakeAgent().format_observation(6)
        shown_turn = ObservationShown(episode=3, turn=0, text=words)
        client.emit(shown_turn)
        await until(pilot, lambda: app.run_state.view.seen == words)
        assert grid.cursor == NOWHERE, "at full speed it would be elsewhere at once"
        client.emit(PaceChanged(turn_s=1.5))
        await until(pilot, lambda: grid.cursor == Spot(0, 1, 2), "the field of the walker")
        client.emit(replace(shown_turn, turn=1, text="nowhere on the map"))
        await until(pilot, lambda: grid.cursor == NOWHERE, "no field of the map")
