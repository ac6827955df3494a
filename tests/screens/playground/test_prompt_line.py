"""The line that says what the last edit of the prompt did."""

from __future__ import annotations

from functools import reduce as fold
from pathlib import Path

import pytest

from llamagym_tui.protocol.events import AnyEvent, PromptChanged
from llamagym_tui.screens.playground.lines import edit_line, work_line
from llamagym_tui.state.reduce import reduce
from llamagym_tui.state.run import RunState, initial_state
from tests import fakes
from tests.screens.conftest import MakeApp
from tests.screens.map_events import blackjack, hitting
from tests.screens.steps import rolling_out, sees, shown

EDIT = PromptChanged(prompt_version=2, system_prompt="Always hit.")


def after(*events: AnyEvent, **settings: object) -> RunState:
    """A run that hits below 14.5 after twelve updates, then these events; 70 of its 280 hands are of 14 and 15."""
    state = initial_state(fakes.config(Path("/runs/demo"), **settings))
    return fold(reduce, [*blackjack(14.5), *events], state)


def test_an_edit_that_is_followed_says_in_how_many_hands_and_of_which_action_there_is_more():
    state = after(EDIT, hitting(17.5, update=12, prompt_version=2))
    # Hard totals 4 to 14 and soft ones 12 to 14 were hit: 14 of 28 rows; now 15 to 17 of both are, too: 20.
    assert edit_line(state).plain == "prompt v2: 60 of 280 hands change; hit 50% → 71%"


def test_a_model_that_does_not_listen_is_told_of():
    state = after(EDIT, hitting(14.5, update=12, prompt_version=2))
    assert edit_line(state).plain == (
        "prompt v2: 0 of 280 hands change; the model hardly follows it"
    )


def test_only_the_first_map_after_an_edit_counts_and_the_line_stays():
    edited = after(EDIT, hitting(17.5, update=12, prompt_version=2))
    later = fold(reduce, [hitting(4.0, update=13, prompt_version=2)], edited)
    assert edit_line(later).plain == edit_line(edited).plain


def test_returns_before_and_after_are_compared_from_a_hundred_episodes_on():
    before = fakes.counted([1.0, -1.0] * 50, 100)
    half = fakes.counted([-1.0] * 99, 199, prompt_version=2)
    whole = fakes.counted([-1.0], 200, prompt_version=2)
    assert edit_line(after(before, EDIT, half)).plain == ""
    # By hand: the root of 100/99 over 10, times 1.96.
    assert edit_line(after(before, EDIT, half, whole)).plain == ("prompt v2: return +0.00 → −1 ± 0")


@pytest.mark.parametrize("size", [(120, 34), (80, 24)])
async def test_the_line_stands_in_the_playground(make_app: MakeApp, size: tuple[int, int]):
    client = fakes.FakeClient([*blackjack(14.5)])
    app = make_app(client)
    async with rolling_out(app, size) as pilot:
        client.emit(EDIT, hitting(17.5, update=12, prompt_version=2))
        await sees(pilot, "prompt v2: 60 of 280 hands change; hit 50% → 71%")
        assert "Warning" not in shown(pilot)


def test_without_word_of_progress_the_turns_of_the_batch_under_way_are_shown():
    state = fold(
        reduce,
        [*fakes.opening_events(), fakes.counted([1.0] * 512, 512)],
        initial_state(fakes.config(Path("/runs/demo"))),
    )
    assert work_line(state).plain == ("playing 1,024 turns, then it learns █████░░░░░ 512 of 1,024")
