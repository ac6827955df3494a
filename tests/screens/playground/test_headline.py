"""What is understood at first sight: how good the policy is, on a line that can be read."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce as fold
from pathlib import Path

import pytest
from msgspec.structs import replace
from textual.app import ComposeResult
from textual.widgets._toast import Toast

from llamagym_tui.protocol.events import (
    AnyEvent,
    DepthMeasured,
    Hello,
    PhaseChanged,
    WarningRaised,
)
from llamagym_tui.screens.playground.lines import (
    HINT_S,
    NOTICE_S,
    STEADY_S,
    Headline,
    Status,
    headline,
    learnt,
    start_line,
)
from llamagym_tui.screens.playground.panes import depth_line
from llamagym_tui.screens.widgets.run_header import StateText
from llamagym_tui.state.reduce import reduce
from llamagym_tui.state.run import RunState, initial_state
from tests import fakes
from tests.screens.conftest import MakeApp
from tests.screens.map_events import blackjack, hitting
from tests.screens.pictures import SMALL, WIDE, at_sizes
from tests.screens.steps import BareApp, sees, until, widget_text


class LineApp(BareApp):
    """An app that shows one line."""

    def __init__(self, line: StateText) -> None:
        super().__init__()
        self._line = line

    def compose(self) -> ComposeResult:
        yield self._line


def after(*events: AnyEvent) -> RunState:
    return fold(reduce, events, initial_state(fakes.config(Path("/runs/demo"))))


def valued(value: float, run: Iterator[AnyEvent] | None = None) -> RunState:
    """A run whose policy has this exact mean return."""
    return after(*(run or blackjack()), replace(hitting(14.5, update=12), value=value))


def test_the_exact_mean_return_stands_between_random_play_and_the_best() -> None:
    state = valued(-0.2213)
    # Half of the way from −0.396 to −0.0466: 5 of 10 cells, 15 of 30.
    assert headline(state, 80).plain == ("−0.221   random −0.396 ▕█████░░░░░▏ −0.047 best")
    assert f"▕{15 * '█'}{15 * '░'}▏" in headline(state, 120).plain


def test_without_it_the_mean_of_the_last_episodes_has_its_interval() -> None:
    state = after(*fakes.opening_events(), fakes.counted([1.0, -1.0] * 50, 100))
    assert headline(state, 80).plain.startswith("0.00 ± 0.20   random")


def test_a_policy_worse_than_random_has_an_empty_bar() -> None:
    assert "▕░░░░░░░░░░▏" in headline(valued(-0.9), 80).plain


@at_sizes(SMALL, and_slowly=(WIDE, (160, 45)))
async def test_it_stands_below_the_header(make_app: MakeApp, size: tuple[int, int]):
    events = [*blackjack(16.5), replace(hitting(16.5, update=12), value=-0.0525)]
    async with make_app(fakes.FakeClient(events)).run_test(size=size) as pilot:
        await sees(pilot, "−0.052   random")
        assert pilot.app.screen.query_one(Headline).region.y == 1


async def test_it_changes_every_two_seconds_at_most_so_that_it_can_be_read() -> None:
    now = 0.0

    line = Headline(valued(-0.3), clock=lambda: now)
    async with LineApp(line).run_test(size=SMALL) as pilot:
        await until(pilot, lambda: "−0.300" in widget_text(line))
        now = 1.0
        line.show(valued(-0.2))
        await until(pilot, lambda: "−0.200" in widget_text(line), "the first change")
        now = 1.0 + STEADY_S - 0.1
        line.show(valued(-0.1))
        await pilot.pause()
        assert "−0.200" in widget_text(line)
        now = 1.0 + STEADY_S
        line.show(valued(-0.1))
        await until(pilot, lambda: "−0.100" in widget_text(line), "the second change")


def test_what_the_last_update_changed_is_told_by_the_hand_that_changed_most() -> None:
    state = after(*blackjack(16.5), hitting(15.5, update=13))
    # Twenty hands of 16 are stood on now, which is right against 2 to 6 in hard ones, and in no soft one.
    assert learnt(state) == "soft 16 v A now stick (44% → 56%), 19 more; 5 of 20 right"


def test_nothing_is_told_of_an_update_that_changed_no_choice() -> None:
    assert learnt(after(*blackjack(16.5), hitting(16.4, update=13))) == ""


def test_a_start_is_told_in_steps() -> None:
    state = after(Hello(protocol=1), PhaseChanged(phase="loading", detail="loading the model"))
    assert start_line(state).plain == "✓ libraries   ▸ model   · environments   · first turns"
    other = after(PhaseChanged(phase="loading", detail="starting the trainer again"))
    assert start_line(other).plain == "starting the trainer again"


async def test_a_notice_has_the_status_line_for_some_seconds() -> None:
    now = 0.0
    noticed = after(*fakes.opening_events(), WarningRaised(message="The disk is slow."))

    line = Status(noticed, clock=lambda: now)
    async with LineApp(line).run_test(size=SMALL) as pilot:
        line.show(noticed)
        await until(pilot, lambda: "The disk is slow." in widget_text(line), "the notice")
        now = NOTICE_S
        line.show(noticed)
        await until(pilot, lambda: "playing 1,024 turns" in widget_text(line), "the work")
        assert "disk" not in widget_text(line)


async def test_what_to_try_next_and_what_was_learnt_have_the_line_in_turn() -> None:
    now = 0.0
    learnt_now = replace(after(*blackjack(16.5), hitting(15.5, update=13)), prompt_version=0)

    line = Status(learnt_now, clock=lambda: now)
    async with LineApp(line).run_test(size=WIDE) as pilot:
        line.show(learnt_now)
        await until(pilot, lambda: "tell it something" in widget_text(line), "what to try")
        now = HINT_S
        line.show(learnt_now)
        await until(pilot, lambda: "soft 16 v A now stick" in widget_text(line), "what was learnt")
        await pilot.resize_terminal(60, 20)
        await until(pilot, lambda: "now stick" not in widget_text(line), "no half sentence")
        assert "…" not in widget_text(line)


def test_the_layers_that_were_compared_are_a_row_of_bars() -> None:
    measured = DepthMeasured(
        layers=[12, 24, 30],
        explained=[[0.25, 0.1], [0.5, 0.1], [0.45, 0.2]],
        values=["r", "x"],
        read=24,
    )
    assert depth_line(after(measured)) == "seen after layers 12–30 ▁█▇, 24 read"
    assert depth_line(after()) == ""


@pytest.mark.parametrize("size", [(80, 24), (120, 34)])
async def test_a_notice_covers_no_figure(make_app: MakeApp, size: tuple[int, int]):
    app = make_app(fakes.FakeClient(blackjack()))
    async with app.run_test(size=size, notifications=True) as pilot:
        await sees(pilot, "the curve")
        app.notify("A long notice. " * 10, timeout=60)
        await until(pilot, lambda: app.screen.query(Toast), "the notice")
        await pilot.pause()
        notice = app.screen.query_one(Toast).region
        assert notice.area
        for figures in app.screen.query("#headline, #returns, #status, MapPane"):
            assert not notice.overlaps(figures.region), figures
