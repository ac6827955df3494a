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
    PolicyMapLaidOut,
    UpdateFinished,
)
from llamagym_tui.screens.playground import map_pane
from llamagym_tui.screens.playground.map_pane import LiveGrid, MapPane, changed_cells
from llamagym_tui.screens.policy_map.grid import CellSize, largest_places
from llamagym_tui.screens.policy_map.mapped_policy import MappedPolicy, Spot
from llamagym_tui.screens.policy_map.screen import PolicyMapScreen
from tests import fakes
from tests.screens import map_events
from tests.screens.conftest import MakeApp
from tests.screens.steps import reaches, rolling_out, sees, shown, until

BLACKJACK = map_events.layout_of(BlackjackAgent())
LAKE = map_events.layout_of(FrozenLakeAgent())


@pytest.mark.parametrize(
    ("layout", "room", "cell", "across"),
    [
        (BLACKJACK, (56, 20), CellSize(2, 1), 2),
        (BLACKJACK, (56, 31), CellSize(5, 1), 1),
        (BLACKJACK, (30, 40), CellSize(2, 1), 1),
        (LAKE, (56, 20), CellSize(9, 3), 1),
        (LAKE, (20, 6), CellSize(3, 1), 1),
    ],
)
def test_cells_are_as_large_as_fits(
    layout: PolicyMapLaidOut, room: tuple[int, int], cell: CellSize, across: int
):
    places = largest_places(layout, *room)
    assert (places.cell, places.across, places.with_optimal) == (cell, across, False)
    assert places.width <= room[0]
    assert places.height <= room[1]


@pytest.mark.parametrize(
    ("size", "is_there"),
    [((120, 34), True), ((120, 30), False), ((100, 40), False), ((160, 45), True)],
)
async def test_the_map_stands_beside_the_curve_where_the_curve_keeps_its_rows(
    make_app: MakeApp, size: tuple[int, int], is_there: bool
):
    app = make_app(fakes.FakeClient(map_events.blackjack()))
    async with rolling_out(app, size) as pilot:
        await pilot.press("a")
        await until(pilot, lambda: app.screen.query(MapPane) and app.run_state.mapped)
        pane = app.screen.query_one(MapPane)
        await until(pilot, lambda: bool(pane.region.area) == is_there)
        assert ("policy map · now · P(hit) in " in shown(pilot)) == is_there
        if is_there:
            assert app.screen.query_one("ReturnChart").size.height >= 9
            await pilot.press("a")
            await until(pilot, lambda: bool(pane.region.area) == (size[0] >= 160), "all figures")


async def test_the_map_says_its_age_and_a_click_opens_it_whole(make_app: MakeApp):
    client = fakes.FakeClient(map_events.blackjack())
    app = make_app(client)
    async with rolling_out(app, (120, 34)) as pilot:
        await pilot.press("a")
        await sees(pilot, "policy map · now")
        client.emit(UpdateFinished(update=13, episodes=0, stats=fakes.STATS))
        await sees(pilot, "policy map · 1 update ago")
        client.emit(map_events.hitting(12.5, update=13))
        await sees(pilot, "policy map · now")
        await pilot.click(LiveGrid, offset=(10, 3))
        await reaches(pilot, PolicyMapScreen)


async def test_what_another_map_has_changed_flashes_and_settles(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(map_pane, "FLASH_S", 0.3)
    client = fakes.FakeClient(map_events.blackjack(14.5))
    app = make_app(client)
    async with rolling_out(app, (120, 34)) as pilot:
        await pilot.press("a")
        await sees(pilot, "policy map · now")
        app.animation_level = "full"
        grid = app.screen.query_one(LiveGrid)
        assert not grid.flashing
        client.emit(*map_events.updated(13.5, 13))
        await until(pilot, lambda: grid.flashing, "the flash")
        # 13 and 14 have another likeliest action; by a tenth no more than those near it have changed.
        assert {21 - spot.row for spot in grid.flashing if spot.panel == 0} >= {14}
        style = grid._cell(next(iter(grid.flashing)), 2, middle=True, best=False).style
        assert style is not None
        assert style.reverse
        await until(pilot, lambda: not grid.flashing, "it settles")


async def test_a_field_that_is_no_state_has_its_ground_and_a_wall_is_a_line(make_app: MakeApp):
    app = make_app(fakes.FakeClient(map_events.lake()))
    async with rolling_out(app, (120, 34)) as pilot:
        await pilot.press("a")
        await sees(pilot, "policy map · now")
        grid = app.screen.query_one(LiveGrid)
        hole, goal, ice = (grid._cell(Spot(0, *at), 9, middle=True, best=False) for at in PLACES)
        assert [each.text.strip() for each in (hole, goal)] == ["O", "G"]
        colors = [each.style.bgcolor.name for each in (hole, goal, ice) if each.style]
        assert colors[:2] == [app.theme_variables[f"field-{name}"].lower() for name in GROUNDS]
        assert len(set(colors)) == 3
        grid.show(MappedPolicy(map_events.layout_of(TaxiAgent()), None))
        for width, at, text in ((2, (0, 1), "·│"), (5, (0, 1), "  · │"), (5, (0, 2), "  ·  ")):
            assert grid._cell(Spot(0, *at), width, middle=True, best=False).text == text


async def test_the_map_shows_where_the_player_is_while_there_is_time_to_see_it(make_app: MakeApp):
    client = fakes.FakeClient(map_events.lake())
    app = make_app(client)
    async with rolling_out(app, (120, 34)) as pilot:
        await pilot.press("a")
        await sees(pilot, "policy map · now")
        grid = app.screen.query_one(LiveGrid)
        words = FrozenLakeAgent().format_observation(6)
        shown_turn = ObservationShown(episode=3, turn=0, text=words)
        client.emit(shown_turn)
        await until(pilot, lambda: app.run_state.view.seen == words)
        assert grid.cursor == map_pane.NOWHERE, "at full speed it would be elsewhere at once"
        client.emit(PaceChanged(turn_s=1.5))
        await until(pilot, lambda: grid.cursor == Spot(0, 1, 2), "the field of the walker")
        client.emit(replace(shown_turn, turn=1, text="nowhere on the map"))
        await until(pilot, lambda: grid.cursor == map_pane.NOWHERE, "no field of the map")


PLACES = ((1, 1), (3, 3), (0, 0))
GROUNDS = ("danger", "goal")


def test_cells_have_changed_that_prefer_another_action_or_moved_by_a_tenth():
    before = map_events.hitting(14.5, update=1)
    after = [list(row) for row in before.shares]
    after[0] = [0.3, 0.7]
    after[1] = [after[1][0] - 0.05, after[1][1] + 0.05]
    after[2] = []
    both = [
        MappedPolicy(BLACKJACK, each) for each in (before, replace(before, shares=after, update=2))
    ]
    assert changed_cells(*both) == {Spot(0, 0, 0)}
    assert changed_cells(MappedPolicy(LAKE, None), both[1]) == frozenset()
