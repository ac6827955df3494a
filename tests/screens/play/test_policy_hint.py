"""The policy at a person's table: requested once a turn, shown as text, compared with the person's choices."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from llamagym_tui.protocol.events import ConversationProbed
from llamagym_tui.screens.play.table import PolicyHint, probabilities_text
from llamagym_tui.state.reduce import reduce
from llamagym_tui.state.run import RunState, initial_state
from tests import fakes
from tests.demos.test_human_game import table


def probed(ticket: int = 1, **shares: float) -> ConversationProbed:
    return ConversationProbed(ticket=ticket, names=list(shares), shares=list(shares.values()))


@pytest.fixture
def running(tmp_path: Path) -> RunState:
    state = initial_state(fakes.config(tmp_path / "run"))
    for event in fakes.opening_events():
        state = reduce(state, event)
    return state


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (probed(stick=0.29, hit=0.71), "hit 71%, stick 29%"),
        (probed(stick=0.5, hit=0.2), "stick 50%, hit 20%, other replies 30%"),
        (probed(a=0.1, b=0.4, c=0.2, d=0.25, e=0.05), "b 40%, d 25%, c 20%, a 10%, …"),
        (probed(), "its actions have no names, so it has no probabilities to show"),
        (
            replace(probed(), why_not="the model cannot say: too long"),
            "the model cannot say: too long",
        ),
    ],
)
def test_actions_are_shown_the_most_probable_first(answer: ConversationProbed, words: str):
    assert probabilities_text(answer) == words


def test_a_turn_is_requested_once_under_the_same_policy(tmp_path: Path, running: RunState):
    hint, game = PolicyHint(), table(tmp_path)
    first = hint.question(game, running)
    assert first is not None
    assert first.messages == game.messages
    assert hint.question(game, running) is None
    again = hint.question(game, replace(running, updates=1))
    assert again is not None
    assert again.ticket == first.ticket + 1
    game.act(0)
    following = hint.question(game, replace(running, updates=1))
    assert following is not None
    assert len(following.messages) == len(first.messages) + 2
    game.act(0)
    assert hint.question(game, running) is None, "the episode is over"


def test_an_answer_counts_for_its_own_turn_alone(tmp_path: Path, running: RunState):
    hint, game = PolicyHint(), table(tmp_path)
    assert hint.question(game, running) is not None
    state = reduce(running, probed(1, left=0.9, right=0.1))
    assert hint.answer(game, state) is not None
    game.act(0)
    assert hint.answer(game, state) is None, "another turn"
    assert hint.question(game, state) is not None
    assert hint.answer(game, state) is None, "its answer has not come yet"
    assert hint.answer(game, reduce(state, probed(2, left=0.9, right=0.1))) is not None
