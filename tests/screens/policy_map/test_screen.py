"""The policy map by its keys and by the mouse, against a scripted trainer; and in a replay."""

from __future__ import annotations

import math
from itertools import chain
from pathlib import Path

import pytest
from msgspec.structs import replace
from textual.app import App
from textual.screen import Screen

from llamagym_tui.agents.taxi import TaxiAgent
from llamagym_tui.app.app import LlamaGymApp
from llamagym_tui.protocol.commands import SetSystemPrompt, WatchPolicyMap
from llamagym_tui.protocol.events import PolicyMapLaidOut, PolicyMapped, PolicyMapWatched
from llamagym_tui.screens.policy_map.grid import PolicyGrid
from llamagym_tui.screens.policy_map.mapped_policy import Spot
from llamagym_tui.screens.policy_map.screen import PolicyMapScreen
from llamagym_tui.screens.widgets.command_asked import CommandAsked
from tests import fakes, recorded_run
from tests.screens.conftest import MakeApp
from tests.screens.map_events import blackjack, hitting, lake, layout_of, updated
from tests.screens.steps import rolling_out, sees, shown, until

NARROW, WIDE = (80, 24), (120, 34)


async def test_g_opens_the_map_and_asks_for_it_closely_and_seldom_again_when_it_is_left(
    make_app: MakeApp,
):
    client = fakes.FakeClient(blackjack())
    async with rolling_out(make_app(client), WIDE) as pilot:
        await pilot.press("g")
        await sees(pilot, "update 12 · prompt v1 · live")
        await pilot.press("g")
        await sees(pilot, "Prompt")
        await until(
            pilot, lambda: client.sent == [WatchPolicyMap(on=True), WatchPolicyMap(on=False)]
        )


async def test_states_on_which_policy_and_optimal_strategy_agree_are_counted(make_app: MakeApp):
    async with rolling_out(make_app(fakes.FakeClient(blackjack())), NARROW) as pilot:
        await pilot.press("g")
        # Hits below 14.5. Hard: wrong are 16 and 15 against 7 to ace, 14 and 13 against 2 to 6, 12 against 4 to 6.
        # Soft: 15 to 17 against all ten cards, and 18 against 9, 10 and ace.
        await sees(
            pilot, "agrees on 224 of 280 states · hard 157/180 · soft 67/100      update 12 · live"
        )


async def test_a_policy_whose_probabilities_are_no_numbers_is_told(make_app: MakeApp):
    broken = replace(hitting(14.5, update=13), shares=[[math.nan, math.nan]] * 280)
    async with rolling_out(
        make_app(fakes.FakeClient(chain(blackjack(), [broken]))), NARROW
    ) as pilot:
        await pilot.press("g")
        await sees(pilot, "the policy's probabilities are no numbers")


async def test_the_map_follows_the_training(make_app: MakeApp):
    client = fakes.FakeClient(blackjack())
    async with rolling_out(make_app(client), WIDE) as pilot:
        await pilot.press("g")
        await sees(pilot, "agrees on 224 of 280")
        client.emit(hitting(16.5, update=13))
        # Now wrong: hard 12 against 4 to 6 and 13 to 16 against 2 to 6; soft 17, and 18 against 9, 10 and ace.
        await sees(pilot, "agrees on 244 of 280 states · hard 157/180 · soft 87/100")
        await sees(pilot, "update 13")
        client.emit(hitting(3.0, update=14))
        # Never hits: hard 4 to 11, 12 but against 4 to 6, 13 to 16 against 7 to ace; soft 12 to 17, and three of 18.
        await sees(pilot, "agrees on 110 of 280 states · hard 73/180 · soft 37/100")


async def test_brackets_step_through_the_maps_of_the_run_live_and_back_to_the_newest(
    make_app: MakeApp,
):
    client = fakes.FakeClient(blackjack(3.0, update=4))
    async with rolling_out(make_app(client), WIDE) as pilot:
        client.emit(hitting(14.5, update=8))
        client.emit(hitting(16.5, update=13))
        await pilot.press("g")
        await sees(pilot, "agrees on 244 of 280")
        await pilot.press("left_square_bracket")
        await sees(pilot, "agrees on 224 of 280")
        await sees(pilot, "update 8 · prompt v1 · map 2 of 3")
        await pilot.press("left_square_bracket", "left_square_bracket")
        await sees(pilot, "agrees on 110 of 280")
        await sees(pilot, "update 4 · prompt v1 · map 1 of 3")
        client.emit(*updated(3.0, 14))
        await sees(
            pilot, "update 8 · prompt v1 · map 2 of 4"
        )  # as many maps before the newest as it was
        await pilot.press("right_square_bracket", "right_square_bracket", "right_square_bracket")
        await sees(pilot, "update 14 · prompt v1 · live")


@pytest.mark.parametrize(
    ("size", "ends"),
    [
        pytest.param(
            (60, 16),
            ("update 12 (now 13)", "update 13 · prompt v1 · live"),
            marks=pytest.mark.slow,
        ),
        (NARROW, ("soft 67/100    update 12 (now 13)", "update 13 · live")),
        ((160, 45), ("(now 13, its map is coming)", "” · live")),
    ],
)
async def test_an_older_map_names_its_update_and_is_not_called_live(make_app: MakeApp, size, ends):
    client = fakes.FakeClient(blackjack())
    newer, its_map = updated(16.5, 13)
    client.emit(newer)
    async with rolling_out(make_app(client), size) as pilot:
        await pilot.press("g")
        await sees(pilot, "update 12")
        await sees(pilot, ends[0])
        assert "live" not in shown(pilot)
        client.emit(its_map)
        await sees(pilot, "update 13")
        await sees(pilot, ends[1])


async def test_the_smallest_map_explains_its_digits_next_to_the_state(make_app: MakeApp):
    async with rolling_out(make_app(fakes.FakeClient(blackjack())), NARROW) as pilot:
        await pilot.press("g")
        await sees(
            pilot, "Your total: 21. Usable ace: no. Dealer shows: 2.   P(hit) in tenths, × differs"
        )
        await pilot.resize_terminal(*WIDE)
        await sees(pilot, "each state as a first turn")
        assert "in tenths, × differs" not in shown(pilot)


@pytest.mark.parametrize(
    ("events", "size"),
    [
        (blackjack, NARROW),
        (lake, WIDE),
        pytest.param(blackjack, WIDE, marks=pytest.mark.slow),
        pytest.param(lake, NARROW, marks=pytest.mark.slow),
    ],
)
async def test_it_is_painted_once_in_its_final_layout(make_app: MakeApp, monkeypatch, events, size):
    paints: list[str] = []

    def displayed(self: App[None], screen: Screen[None], renderable: object) -> None:
        painted(self, screen, renderable)
        if isinstance(screen, PolicyMapScreen) and shown(pilot) not in paints[-1:]:
            paints.append(shown(pilot))

    painted = App._display
    async with rolling_out(make_app(fakes.FakeClient(events(), confirms=False)), size) as pilot:
        monkeypatch.setattr(App, "_display", displayed)
        await pilot.press("g")
        await sees(pilot, "agrees on")
        await pilot.pause(0.5)
        assert len(paints) == 1


async def test_arrow_keys_move_the_cursor_over_the_edge_into_the_next_panel(make_app: MakeApp):
    async with rolling_out(make_app(fakes.FakeClient(blackjack())), NARROW) as pilot:
        await pilot.press("g")
        await sees(pilot, "Your total: 21. Usable ace: no. Dealer shows: 2.")
        await pilot.press(*["down"] * 5)
        await sees(
            pilot, "agrees, optimal is stick: P(hit) 33.2%, P(stick) 65.8%, other replies 1.0%"
        )
        await pilot.press(*["right"] * 5)
        await sees(pilot, "Your total: 16. Usable ace: no. Dealer shows: 7.")
        await sees(pilot, "× differs, optimal is hit")
        await pilot.press(*["right"] * 5)
        await sees(pilot, "Your total: 16. Usable ace: yes. Dealer shows: 2.")
        await pilot.press("up", "left")
        await sees(pilot, "Your total: 17. Usable ace: no. Dealer shows: ace.")


async def test_every_field_can_be_reached_in_the_smallest_terminal(make_app: MakeApp):
    async with rolling_out(make_app(fakes.FakeClient(blackjack())), (60, 16)) as pilot:
        await pilot.press("g")
        await sees(pilot, "Your total: 21. Usable ace: no.")
        await pilot.press(*["down"] * 27)
        await sees(pilot, "Your total: 12. Usable ace: yes. Dealer shows: 2.")
        await sees(pilot, "   12  7  7  7")


async def test_the_field_under_the_pointer_is_told(make_app: MakeApp):
    async with rolling_out(make_app(fakes.FakeClient(blackjack())), WIDE) as pilot:
        await pilot.press("g")
        await sees(pilot, "agrees on 224 of 280")
        grid = pilot.app.screen.query_one(PolicyGrid)
        # Label 5, fields of 3: the fourth column and the third row; then the optimal strategy beside, fields of 2.
        await pilot.hover(grid, offset=(5 + 3 * 3 + 1, 3))
        await until(pilot, lambda: grid.cursor == Spot(0, 2, 3))
        await sees(pilot, "Your total: 19. Usable ace: no. Dealer shows: 5.")
        await pilot.hover(grid, offset=(5 + 30 + 2 + 2 * 9, 1))
        await sees(pilot, "Your total: 21. Usable ace: no. Dealer shows: ace.")


async def test_where_there_is_no_room_beside_o_shows_the_optimal_strategy_in_place(
    make_app: MakeApp,
):
    async with rolling_out(make_app(fakes.FakeClient(blackjack())), NARROW) as pilot:
        await pilot.press("g")
        await sees(pilot, "o Best")
        await sees(pilot, "   16  3  3  3  3  3  3×")
        await pilot.press("o")
        await sees(pilot, "the optimal strategy; o shows the policy again")
        await sees(pilot, "   16  S  S  S  S  S  H  H  H  H  H")
        await pilot.press("o")
        await sees(pilot, "agrees on 224 of 280")
        await pilot.resize_terminal(*WIDE)
        await sees(pilot, "   16  3  3  3  3  3  3× 3× 3× 3× 3×  S S S S S H H H H H")
        await until(pilot, lambda: "o Best" not in shown(pilot))


async def test_a_map_that_comes_while_it_is_waited_for_has_all_its_keys(make_app: MakeApp):
    *opening, layout, mapped = blackjack()
    client = fakes.FakeClient(opening)
    async with rolling_out(make_app(client), NARROW) as pilot:
        await pilot.press("g")
        await sees(pilot, "No map: this environment has no policy_map()")
        client.emit(layout, mapped)
        await sees(pilot, "agrees on 224")
        await sees(pilot, "o Best")


async def test_the_lake_has_arrows_and_every_shortest_path_counts(make_app: MakeApp):
    async with rolling_out(make_app(fakes.FakeClient(lake())), NARROW) as pilot:
        await pilot.press("g")
        # Down is no shortest way from 1 (a hole), 3 (a hole) and 8 (a hole); from 9 both down and right are.
        await sees(pilot, "agrees on 8 of 11 states")
        await pilot.press("down", "down", "right")
        await sees(pilot, "You are at row 2, column 1: left ice, down ice, right ice, up hole.")
        await sees(pilot, "agrees, optimal is down or right: left 5%, down 81%, right 8%, up 6%")
        await pilot.press("up")
        await sees(pilot, "no action here")


async def test_arrow_keys_cross_to_the_panel_below_and_to_the_one_beside(make_app: MakeApp):
    taxi = iter([*fakes.opening_events(), layout_of(TaxiAgent())])
    async with rolling_out(make_app(fakes.FakeClient(taxi)), (160, 45)) as pilot:
        await pilot.press("g")
        await sees(pilot, "get R")
        grid = pilot.app.screen.query_one(PolicyGrid)
        for keys, spot in (
            (("down",) * 5, Spot(3, 0, 0)),
            (("right",) * 5, Spot(4, 0, 0)),
            (("up",), Spot(1, 4, 0)),
        ):
            await pilot.press(*keys)
            assert grid.cursor == spot
        await pilot.press(*("right",) * 10)
        assert grid.cursor == Spot(2, 4, 4), "the last panel of its row"


async def test_an_expert_that_need_not_be_the_best_is_called_the_expert(make_app: MakeApp):
    *opening, layout, mapped = lake()
    events = iter([*opening, replace(layout, best_is_experts=True), mapped])
    async with rolling_out(make_app(fakes.FakeClient(events)), NARROW) as pilot:
        await pilot.press("g")
        await sees(pilot, "agrees on 8 of 11 states")
        await pilot.press("down", "down", "right")
        await sees(pilot, "agrees, the expert takes down or right: left 5%")
        await until(pilot, lambda: "optimal" not in shown(pilot))


async def test_what_is_too_long_for_a_line_has_more_where_the_map_leaves_them(make_app: MakeApp):
    events = [*lake()]
    [mapped] = [event for event in events if isinstance(event, PolicyMapped)]
    events[-1] = replace(mapped, shares=[[0.21, 0.22, 0.22, 0.233]] * 11)
    async with rolling_out(make_app(fakes.FakeClient(iter(events))), NARROW) as pilot:
        await pilot.press("g")
        await sees(pilot, "× differs, optimal is down or right: left 21%")
        await sees(pilot, "11.7%")
        await pilot.resize_terminal(60, 20)
        await sees(pilot, "11.7%")


async def test_another_prompt_is_told_until_its_map_has_come(make_app: MakeApp):
    client = fakes.FakeClient(blackjack())
    app = make_app(client)
    async with rolling_out(app, WIDE) as pilot:
        await pilot.press("g")
        await sees(pilot, "prompt v1 · live")
        app.post_message(CommandAsked(SetSystemPrompt(system_prompt="Hit.")))
        await sees(pilot, "prompt v1 (v2 to come) · live")
        client.emit(hitting(20.0, update=12, prompt_version=2))
        await sees(pilot, "update 12 · prompt v2 “Hit.” · live")


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([], "The map comes once the model is loaded."),
        (list(fakes.opening_events()), "No map: this environment has no policy_map()."),
        ([*fakes.opening_events(), PolicyMapLaidOut(why_not="No \x1b[31mmap.")], "No ␛[31mmap."),
    ],
)
async def test_where_there_is_no_map_a_sentence_says_why(make_app: MakeApp, events, words):
    client = fakes.FakeClient(events)
    async with make_app(client).run_test(size=NARROW) as pilot:
        await sees(pilot, "rolling out" if events else "starting the trainer")
        await pilot.press("g")
        await sees(pilot, words)
        assert client.sent == [] or events


async def test_a_long_reason_why_there_is_no_map_is_told_in_full(make_app: MakeApp):
    why_not = (
        f"CliffAgent.policy_map failed: ValueError: {'there is no such state, ' * 3}states-end"
    )
    client = fakes.FakeClient(iter([*fakes.opening_events(), PolicyMapLaidOut(why_not=why_not)]))
    async with rolling_out(make_app(client), (60, 20)) as pilot:
        await pilot.press("g")
        await sees(pilot, "states-end")


async def test_the_map_that_is_not_confirmed_is_not_called_live(make_app: MakeApp):
    client = fakes.FakeClient(blackjack(), confirms=False)
    async with rolling_out(make_app(client), WIDE) as pilot:
        await pilot.press("g")
        await sees(pilot, "prompt v1")
        assert "live" not in shown(pilot)
        client.emit(PolicyMapWatched(on=True))
        await sees(pilot, "prompt v1 · live")


async def test_where_there_is_room_the_map_names_the_words_of_its_prompt(make_app: MakeApp):
    async with rolling_out(make_app(fakes.FakeClient(blackjack())), (160, 34)) as pilot:
        await pilot.press("g")
        await sees(pilot, "update 12 · prompt v1 “You are playing Blackjack.")


async def test_a_replay_has_the_map_of_its_moment(tmp_path: Path):
    run_dir = recorded_run.record(tmp_path / "run", [*blackjack(), hitting(16.5, update=13)])
    async with LlamaGymApp(replay=run_dir).run_test(size=WIDE) as pilot:
        await sees(pilot, "REPLAY")
        await pilot.press("end", "g")
        await sees(pilot, "agrees on 244 of 280")
        await sees(pilot, "update 13 · prompt v1")
        assert "live" not in shown(pilot)
