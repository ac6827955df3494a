"""Training and inference side by side on the playground: hand-worked figures in their places."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from llamagym_tui.protocol.events import (
    AnyEvent,
    ModeChanged,
    RunStarted,
    SettingsChanged,
    UpdateFinished,
)
from llamagym_tui.screens.playground.figures import ppo_figures, recent_text
from llamagym_tui.screens.playground.mode_comparison import MOST_ACTIONS, NONE, action_rows, rows
from llamagym_tui.state.reduce import reduce
from llamagym_tui.state.run import RunState, initial_state
from tests import fakes
from tests.screens.conftest import MakeApp
from tests.screens.steps import sees, shown, until

TRAINED = fakes.counted([1.0, -1.0, -1.0, -1.0], 4, actions=[3, 1])
PLAYED = fakes.counted([1.0, 1.0, 1.0, -1.0], 8, actions=[1, 4], mode="inference")


def in_inference() -> Iterator[AnyEvent]:
    """A run that was trained and is only played now, more coolly."""
    yield from fakes.opening_events()
    yield TRAINED
    yield UpdateFinished(update=1, episodes=4, stats=fakes.STATS)
    yield ModeChanged(mode="inference")
    yield SettingsChanged(changes={"generation.temperature": 0.5})
    yield PLAYED


def after(*events: AnyEvent) -> RunState:
    state = initial_state(fakes.config("/runs/demo"))  # type: ignore[arg-type]
    for event in events:
        state = reduce(state, event)
    return state


def test_the_figures_of_both_modes_by_hand():
    told = {row.name: row[1:] for row in rows(after(*in_inference()))}
    assert told["episodes"] == ("4", "4")
    # Means of 1, -1, -1, -1 and of 1, 1, 1, -1; either deviation is 1, so the error 1 / 2 and the interval 1.96 / 2.
    assert told["return ±95%"] == ("\N{MINUS SIGN}0.50 ± 0.98", "+0.50 ± 0.98")
    assert (told["stick"], told["hit"]) == (("75.0%", "20.0%"), ("25.0%", "80.0%"))
    assert told["parse fail"] == ("0.0%", "0.0%")
    assert (told["temperature"], told["update"]) == (("1", "0.5"), ("0", "1"))
    assert told["prompt"] == ("v1 “You are playing …", "")


def test_refusals_are_shown_beside_parse_failures_where_there_are_any() -> None:
    refused = replace(TRAINED, parse_failures=2, refusals=3)
    turns = sum(refused.lengths)
    told = {row.name: row[1:] for row in rows(after(*fakes.opening_events(), refused))}
    assert told["parse fail"] == (f"{2 / turns:.1%}", NONE)
    assert told["refused"] == (f"{3 / turns:.1%}", NONE)
    assert "refused" not in {row.name for row in rows(after(*in_inference()))}
    named = [figure.name for figure in ppo_figures(fakes.STATS, few=False)]
    stats = replace(fakes.STATS, refusal_rate=0.25)
    found = ppo_figures(stats, few=False)
    at = named.index("parse fail") + 1
    assert found[at] == ("refused", "25.0%")
    assert [figure.name for figure in found] == [*named[:at], "refused", *named[at:]]


def test_a_return_that_counts_something_names_it_across_both_modes():
    chips = replace(fakes.run_started(), return_unit="chips a hand")
    assert [
        row for row in rows(after(chips, *in_inference())) if row.name == "return in"
    ] == []  # a later start has none
    shown = next(row for row in rows(after(*in_inference(), chips)) if row.name == "return in")
    assert shown[1:] == ("chips a hand", "")


def test_of_a_single_episode_no_error_is_told():
    state = after(*fakes.opening_events(), fakes.counted([-1.0], 1))
    assert {row.name: row.train for row in rows(state)}["return ±95%"] == "\N{MINUS SIGN}1"
    assert recent_text(state) == "\N{MINUS SIGN}1"


def test_what_was_not_played_is_a_dash():
    told = {row.name: row[1:] for row in rows(after(*fakes.opening_events(), TRAINED))}
    assert (told["return ±95%"][1], told["hit"], told["temperature"][1]) == (
        NONE,
        ("25.0%", NONE),
        NONE,
    )


def test_of_many_actions_those_are_told_that_changed_most():
    many = replace(fakes.run_started(), action_names=[f"a{at}" for at in range(6)])
    trained = fakes.counted([1.0], 1, actions=[50, 10, 10, 10, 10, 10])
    played = fakes.counted([1.0], 2, actions=[10, 10, 10, 11, 12, 47], mode="inference")
    names = [
        row.name for row in action_rows(after(many, trained, ModeChanged(mode="inference"), played))
    ]
    assert names == ["a0", "a5", "a4", "a3"]
    assert len(names) == MOST_ACTIONS


async def test_in_inference_a_wide_terminal_compares_in_place_of_ppos_figures(make_app: MakeApp):
    client = fakes.FakeClient()
    async with make_app(client).run_test(size=(120, 34)) as pilot:
        client.emit(TRAINED, UpdateFinished(update=1, episodes=4, stats=fakes.STATS))
        await sees(pilot, "KL ref")
        assert "temperature" not in shown(pilot)
        client.emit(ModeChanged(mode="inference"), PLAYED)
        await sees(pilot, "hit         25.0%          80.0%")
        await sees(pilot, "Inference: nothing is trained")
        assert "KL ref" not in shown(pilot)
        client.emit(ModeChanged(mode="train"))
        await sees(pilot, "KL ref")
        await until(pilot, lambda: "temperature" not in shown(pilot))


async def test_a_high_terminal_keeps_the_comparison_under_the_figures_after_inference(
    make_app: MakeApp,
):
    client = fakes.FakeClient([*in_inference(), ModeChanged(mode="train")])
    async with make_app(client).run_test(size=(200, 50)) as pilot:
        await sees(pilot, "KL ref")
        await sees(pilot, "hit         25.0%          80.0%")


@pytest.mark.parametrize(("width", "more"), [(60, "  stick"), (80, "  stick  hit    temperature")])
async def test_in_inference_a_small_terminal_compares_in_three_lines(
    make_app: MakeApp, width: int, more: str
):
    client = fakes.FakeClient(in_inference())
    async with make_app(client).run_test(size=(width, 24)) as pilot:
        await sees(pilot, f"return ±95%   episodes  parse fail{more}")
        await sees(pilot, "train     \N{MINUS SIGN}0.50 ± 0.98  4         0.0%")
        await sees(pilot, "inference +0.50 ± 0.98  4         0.0%")
        assert "KL" not in shown(pilot)


@pytest.mark.parametrize(
    ("width", "more"), [(60, "left   …"), (80, "left   down   right  up     …")]
)
async def test_a_small_terminal_compares_actions_before_other_figures_and_marks_missing_ones(
    make_app: MakeApp, width: int, more: str
):
    names, counts = ["left", "down", "right", "up"], [10, 200, 100, 40]
    opening = [
        replace(each, action_names=names) if isinstance(each, RunStarted) else each
        for each in in_inference()
    ]
    client = fakes.FakeClient([*opening, fakes.counted([1.0], 9, actions=counts, mode="inference")])
    async with make_app(client).run_test(size=(width, 24)) as pilot:
        await sees(pilot, f"parse fail  {more}")


async def test_names_of_actions_are_literal_and_cut(make_app: MakeApp):
    names = ["[@click=app.quit]leave[/]\x1b[2J", "very long name " * 500]
    opening = [
        replace(event, action_names=names) if isinstance(event, RunStarted) else event
        for event in in_inference()
    ]
    async with make_app(fakes.FakeClient(opening)).run_test(size=(120, 34)) as pilot:
        await sees(pilot, "[@click=ap… 75.0%")
        await sees(pilot, "very long … 25.0%")
        assert "\x1b" not in shown(pilot)
        await pilot.resize_terminal(80, 24)
        await sees(pilot, "parse fail  [@click=ap…  very long …  …")
