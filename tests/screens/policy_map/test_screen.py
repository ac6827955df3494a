"""The policy map screen against a scripted trainer, and in a replay."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from llamagym_tui.agents.taxi import TaxiAgent
from llamagym_tui.app.app import LlamaGymApp
from llamagym_tui.protocol.events import PolicyMapLaidOut, UpdateFinished
from llamagym_tui.screens.policy_map import screen
from llamagym_tui.screens.policy_map.mapped_policy import Spot
from llamagym_tui.screens.policy_map.screen import PolicyGrid
from tests import fakes, recorded_run
from tests.screens.conftest import MakeApp
from tests.screens.map_events import blackjack, hitting, lake, layout_of, updated
from tests.screens.steps import notices, rolling_out, sees, shown, until

NARROW, WIDE = (80, 24), (120, 34)


async def test_g_opens_the_map_which_follows_the_training_and_is_computed_often(
    make_app: MakeApp,
):
    client = fakes.FakeClient(blackjack())
    async with rolling_out(make_app(client), WIDE) as pilot:
        await pilot.press("g")
        # Hits below 14.5. Hard: wrong are 16 and 15 against 7 to ace, 14 and 13 against 2 to 6, 12 against 4 to 6.
        # Soft: 15 to 17 against all ten cards, and 18 against 9, 10 and ace.
        await sees(pilot, "plays like basic strategy in 224 of 280 hands  update 12 · prompt v1")
        client.emit(UpdateFinished(update=13, episodes=0, stats=fakes.STATS))
        await sees(pilot, "(now 13)")
        client.emit(hitting(16.5, update=13))
        # Now wrong: hard 12 against 4 to 6 and 13 to 16 against 2 to 6; soft 17, and 18 against 9, 10 and ace.
        await sees(pilot, "244 of 280 hands  update 13")
        await pilot.press("g")
        await sees(pilot, "p Prompt")


async def test_brackets_step_through_the_maps_of_the_run(make_app: MakeApp):
    client = fakes.FakeClient([*blackjack(3.0), hitting(14.5, update=13)])
    async with rolling_out(make_app(client), WIDE) as pilot:
        await pilot.press("g")
        await sees(pilot, "224 of 280")
        await pilot.press("left_square_bracket")
        await sees(pilot, "110 of 280 hands  update 12 · prompt v1 · map 1 of 2")
        client.emit(hitting(16.5, update=14))
        await sees(pilot, "update 13 · prompt v1 · map 2 of 3")
        await pilot.press("right_square_bracket", "right_square_bracket")
        await sees(pilot, "244 of 280 hands  update 14")


async def test_o_shows_the_best_actions_and_the_policy_again(make_app: MakeApp):
    async with rolling_out(make_app(fakes.FakeClient(lake())), NARROW) as pilot:
        await pilot.press("g")
        await sees(pilot, "↓81")
        await pilot.press("o")
        await sees(pilot, "the best play; o shows the policy again")
        assert "↓81" not in shown(pilot)
        await pilot.press("o")
        await sees(pilot, "plays as is best in 8 of 11 states")
        await pilot.press("o", "left_square_bracket")
        await sees(pilot, "↓81")


async def test_the_film_of_the_map_is_saved_by_its_name(make_app: MakeApp):
    app = make_app(fakes.FakeClient([*blackjack(3.0), hitting(14.5, update=13)]))
    async with rolling_out(app, WIDE) as pilot:
        await pilot.press("g")
        await sees(pilot, "224 of 280")
        await pilot.press("Y")
        await until(pilot, lambda: notices(app), "a notice")
    assert app.config is not None
    [path] = Path(app.config.run_dir).glob("film-*.svg")
    assert notices(app) == [f"The film is saved: {path}"]


async def test_the_cursor_moves_over_the_edge_and_tells_of_its_cell(make_app: MakeApp):
    app = make_app(fakes.FakeClient(blackjack()))
    async with rolling_out(app, WIDE) as pilot:
        await pilot.press("g", *["right"] * 9)
        grid = app.screen.query_one(PolicyGrid)
        await until(pilot, lambda: grid.cursor == Spot(0, 0, 9))
        await pilot.press("right")
        assert grid.cursor == Spot(1, 0, 0)
        await pilot.press("left", "left", *["down"] * 5)
        assert grid.cursor == Spot(0, 5, 8)
        await sees(pilot, "Your total: 16. Usable ace: no. Dealer shows: 10.")
        # 0.5 + 0.11 (14.5 - 16) = 0.335 of 0.99
        told = "◦ the model: stick 65.8%, hit 33.2%, other replies 1.0%; the best play: hit"
        await sees(pilot, told)
        await pilot.press(*["up"] * 9)
        assert grid.cursor == Spot(0, 0, 8)


async def test_cells_whose_action_has_changed_are_bright_for_a_moment(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(screen, "CHANGED_S", 0.5)
    client = fakes.FakeClient(blackjack())
    app = make_app(client)
    async with rolling_out(app, WIDE) as pilot:
        await pilot.press("g")
        await sees(pilot, "224 of 280")
        grid = app.screen.query_one(PolicyGrid)

        def underlined() -> list[int]:
            """The lines with marked cells."""
            lines = range(19)
            return [
                line
                for line in lines
                if any(part.style and part.style.underline for part in grid.render_line(line))
            ]

        assert underlined() == []
        client.emit(*updated(16.5, 13))
        await until(pilot, lambda: underlined() == [6, 7], "16 and 15 are hit now")
        await until(pilot, lambda: underlined() == [], "the marks are gone")


async def test_a_board_at_a_time_is_shown_and_tab_shows_the_next(make_app: MakeApp):
    layout = layout_of(TaxiAgent())
    app = make_app(fakes.FakeClient([*fakes.opening_events(), layout]))
    async with rolling_out(app, NARROW) as pilot:
        await pilot.press("g")
        await sees(pilot, "red → green")
        assert "red → yellow" not in shown(pilot)
        await pilot.press("down", "tab")
        await sees(pilot, "red → yellow")
        assert app.screen.query_one(PolicyGrid).cursor == Spot(1, 1, 0)
        await pilot.press("shift+tab", "shift+tab")
        await sees(pilot, "taxi → blue")


async def test_every_cell_is_reached_in_the_smallest_terminal(make_app: MakeApp):
    app = make_app(fakes.FakeClient(blackjack()))
    async with rolling_out(app, (60, 16)) as pilot:
        await pilot.press("g", *["down"] * 17)
        grid = app.screen.query_one(PolicyGrid)
        await until(pilot, lambda: grid.cursor == Spot(0, 17, 0))
        await sees(pilot, "Your total: 4.")
        assert "hard" not in shown(pilot), "it scrolls"


async def test_the_cell_under_the_mouse_is_told_of(make_app: MakeApp):
    app = make_app(fakes.FakeClient(lake()))
    async with rolling_out(app, WIDE) as pilot:
        await pilot.press("g")
        await sees(pilot, "plays as is best in 8 of 11 states")
        grid = app.screen.query_one(PolicyGrid)
        x, y = grid.places.of(Spot(0, 1, 2))
        await pilot.hover(PolicyGrid, offset=(x + 1, y + 1))
        await until(pilot, lambda: grid.cursor == Spot(0, 1, 2))


async def test_an_expert_that_need_not_be_the_best_is_called_the_expert(make_app: MakeApp):
    events = [
        replace(each, best_is_experts=True) if isinstance(each, PolicyMapLaidOut) else each
        for each in lake()
    ]
    async with rolling_out(make_app(fakes.FakeClient(events)), WIDE) as pilot:
        await pilot.press("g")
        await sees(pilot, "plays as the expert does in 8 of 11 states")
        await sees(pilot, "◦ unlike the expert")


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([], "The map comes once the model is loaded."),
        (list(fakes.opening_events()), "There is no map of this environment."),
        ([*fakes.opening_events(), PolicyMapLaidOut(why_not="No \x1b[31mmap.")], "No ␛[31mmap."),
    ],
)
async def test_where_there_is_no_map_a_sentence_says_why(make_app: MakeApp, events, words):
    client = fakes.FakeClient(events)
    async with make_app(client).run_test(size=NARROW) as pilot:
        await sees(pilot, "episode " if events else "starting the trainer")
        await pilot.press("g")
        await sees(pilot, words)


async def test_a_replay_has_the_map_of_its_moment(tmp_path: Path):
    run_dir = recorded_run.record(tmp_path / "run", [*blackjack(), hitting(16.5, update=13)])
    async with LlamaGymApp(replay=run_dir).run_test(size=WIDE) as pilot:
        await sees(pilot, "REPLAY")
        await pilot.press("end", "g")
        await sees(pilot, "244 of 280 hands  update 13 · prompt v1")
        assert "live" not in shown(pilot)
