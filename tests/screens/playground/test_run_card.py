"""The card of a run: when it opens, and the two maps on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec.structs import replace
from textual.content import Content
from textual.pilot import Pilot
from textual.style import Style

from llamagym_tui.protocol.events import AnyEvent, RunFinished
from llamagym_tui.screens.playground.playground import PlaygroundScreen
from llamagym_tui.screens.playground.run_card import RunCard, small_map
from llamagym_tui.screens.policy_map.mapped_policy import MappedCell, MappedPolicy
from llamagym_tui.screens.steering.prompt_editor import PromptEditor
from llamagym_tui.state.reduce import reduce
from llamagym_tui.state.run import RunState, initial_state
from tests import fakes
from tests.screens.conftest import MakeApp
from tests.screens.map_events import blackjack, hitting, lake
from tests.screens.pictures import SMALL_AND_SLOWLY_WIDE
from tests.screens.steps import is_drawn, reaches, rolling_out, sees, shown, until


def marking(cell: MappedCell) -> Style:
    return Style(reverse=cell.agrees is False)


END = RunFinished(episodes=900, env_steps=900, updates=12, elapsed_s=9.0)


def folded(*events: AnyEvent) -> RunState:
    state = initial_state(fakes.config(Path("/runs/demo")))
    for event in events:
        state = reduce(state, event)
    return state


def reversed_cells(line: Content) -> list[int]:
    return [span.start for span in line.spans if span.style == Style(reverse=True)]


def test_a_small_map_has_a_sign_for_each_state_in_the_style_of_its_cell():
    state = folded(*lake())
    assert state.map_layout is not None
    lines = small_map(MappedPolicy(state.map_layout, state.mapped), marking, spaced=False)
    assert [line.plain.rstrip() for line in lines] == [
        "update 4 · 8 of 11",
        "lake",
        "↓↓↓↓",
        "↓O↓O",
        "↓↓↓O",
        "O→→G",
    ]
    # Down leads into a hole from the second and the fourth field of the first row, and the first of the third.
    assert [reversed_cells(line) for line in lines[2:]] == [[1, 3], [], [0], []]


def test_panels_stand_next_to_each_other_where_they_fit_and_else_below():
    state = folded(*blackjack())
    layout = state.map_layout
    assert layout is not None
    apart = small_map(MappedPolicy(layout, state.mapped), marking, spaced=False)
    assert [line.plain.rstrip() for line in apart[1:3]] == [
        "hard        soft",
        "SSSSSSSSSS  SSSSSSSSSS",
    ]
    assert len(apart) == 20  # the count, the titles, 18 totals
    wide = replace(layout.panels[0], columns=layout.panels[0].columns * 2)
    below = replace(layout, panels=[wide, layout.panels[1]])
    assert len(small_map(MappedPolicy(below, None), marking, spaced=False)) == 31


async def test_a_run_that_ends_at_its_limit_shows_its_card(make_app: MakeApp):
    app = make_app(fakes.FakeClient([*lake(), END]))
    async with app.run_test(size=(80, 24)) as pilot:
        await reaches(pilot, RunCard)
        await sees(pilot, "update 4 · 8 of 11")
        assert shown(pilot).count("8 of 11") == 1, "there is one map"
        await pilot.press("end")  # the prompt is below the edge of this terminal
        await sees(pilot, "to do it again llamagym-tui train blackjack")
        assert fakes.PROMPT[:40] in shown(pilot)
        await sees(pilot, "To share: y, or llamagym-tui report demo")
        await pilot.press("escape")
        await reaches(pilot, PlaygroundScreen)
        await sees(pilot, "The run has ended")
        await pilot.press("C")
        await reaches(pilot, RunCard)


async def test_a_card_comes_over_no_other_screen_and_not_where_the_run_was_stopped(
    make_app: MakeApp,
):
    app = make_app(client := fakes.FakeClient([*lake()]))
    async with rolling_out(app, (80, 24)) as pilot:
        await pilot.press("p")
        await reaches(pilot, PromptEditor)
        client.emit(END)
        await until(pilot, lambda: app.run_state.finished is not None)
        await pilot.pause()
        assert isinstance(app.screen, PromptEditor)
    app = make_app(client := fakes.FakeClient([*lake()]))
    async with rolling_out(app, (80, 24)) as pilot:
        app.run_state = replace(app.run_state, stopping=True)
        client.emit(END)
        await until(pilot, lambda: app.run_state.finished is not None)
        await pilot.pause()
        assert isinstance(app.screen, PlaygroundScreen)


@SMALL_AND_SLOWLY_WIDE
def test_the_card(snap_compare: Any, make_app: MakeApp, size: tuple[int, int]):
    async def settled(pilot: Pilot[None]) -> None:
        await reaches(pilot, RunCard)
        await until(pilot, lambda: is_drawn(pilot.app.screen))

    learned = [*fakes.learning(12), hitting(15.5, update=20)]
    events = [*blackjack(9.5, 2), *learned, END]
    assert snap_compare(make_app(fakes.FakeClient(events)), terminal_size=size, run_before=settled)
