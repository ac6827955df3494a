"""What a screen knows of a reply under inspection, and how it is worded; no event loop."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from llamagym_tui.protocol.commands import InspectTurn
from llamagym_tui.protocol.events import AnyEvent, PhaseChanged, SessionFailed, TurnInspected
from llamagym_tui.screens.inspector.texts import awaited_text, headline, status, table, visible
from llamagym_tui.screens.widgets.numbers import BAR, bar
from llamagym_tui.state.reduce import reduce, trainer_lost
from llamagym_tui.state.run import initial_state, requested
from tests import fakes
from tests.screens.inspected import TOKENS, decision, told, untrained

ASK = InspectTurn(episode=31, turn=1)
REFUSED = TurnInspected(episode=31, turn=1, why_not="Episode 31 is of another time.")


def asked():
    return requested(initial_state(fakes.config(Path("/runs/demo"))), ASK)


def test_a_reply_is_pending_until_the_trainer_tells_it():
    state = asked()
    assert requested(state, ASK) is state, "it is on its way"
    assert (state.inspection.requested, state.inspection.found) == (ASK, None)
    state = reduce(state, told(31, 1))
    assert (state.inspection.requested, state.inspection.of(31, 1)) == (None, told(31, 1))
    assert state.inspection.of(31, 0) is None


def test_an_answer_to_an_older_request_leaves_the_newer_one_pending():
    newer = InspectTurn(episode=31, turn=2)
    state = reduce(requested(asked(), newer), told(31, 1))
    assert state.inspection.requested == newer


def test_a_refusal_leaves_what_was_told_and_the_next_answer_takes_the_refusal_away():
    state = reduce(reduce(asked(), told(31, 1)), REFUSED)
    assert state.inspection.of(31, 1) == told(31, 1)
    assert (
        status(state.inspection, 31, 1)
        == "These figures are of policy 40. Episode 31 is of another time."
    )
    assert status(reduce(state, told(31, 1)).inspection, 31, 1) == ""


def test_nothing_is_pending_once_the_trainer_is_gone():
    assert trainer_lost(asked(), "It died.").inspection.requested is None


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (
            told(31, 1),
            "Reply 2 of episode 31, sampled by policy 39, now policy 40: advantage +0.83, 1 of 4 tokens clipped. "
            "4 of 58 tokens carry loss.",
        ),
        (
            untrained(told(31, 1)),
            "Reply 2 of episode 31, sampled by policy 39, now policy 39: not trained yet, its batch is not complete. "
            "4 of 58 tokens carry loss.",
        ),
        (REFUSED, "Reply 2 of episode 31: Episode 31 is of another time."),
        (
            told(31, 1, said_by_policy=False),
            "Reply 2 of episode 31, sampled by policy 39, now policy 40: "
            "not sampled from the policy, so not trained on. 4 of 58 tokens carry loss.",
        ),
    ],
)
def test_a_sentence_says_what_is_looked_at(event: TurnInspected, words: str):
    assert headline(reduce(asked(), event).inspection, 31, 1, awaited="") == words


@pytest.mark.parametrize(
    ("sampled", "words"),
    [
        (4, " 4 of 58 tokens carry loss."),
        (5, " 4 of 58 tokens carry loss, but 5 should: this is a fault of ours."),
    ],
)
def test_tokens_that_carry_loss_are_counted_and_checked(sampled: int, words: str):
    event = told(31, 1, sampled=sampled)
    assert headline(reduce(asked(), event).inspection, 31, 1, awaited="").endswith(
        f"tokens clipped.{words}"
    )


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (PhaseChanged(phase="rolling_out"), "requested; the trainer answers between two steps."),
        (
            PhaseChanged(phase="updating"),
            "requested; an update is under way and the trainer answers after it.",
        ),
        (
            PhaseChanged(phase="updating", detail="epoch 1 of 2"),
            "requested; an update is under way, epoch 1 of 2, and the trainer answers after it.",
        ),
        (SessionFailed(message="gone"), "there is no trainer to answer."),
    ],
)
def test_while_an_answer_is_awaited_it_is_said_what_the_trainer_does(event: AnyEvent, words: str):
    state = reduce(asked(), event)
    sentence = headline(state.inspection, 31, 1, awaited=awaited_text(state))
    assert sentence == f"Reply 2 of episode 31: {words}"


def test_the_cursor_begins_where_admissible_replies_part():
    rows = table(told(31, 1))
    assert (rows.first, rows.rows[rows.first].name) == (2, "·1")
    assert [row.mark for row in rows.rows] == ["○", "●", "●", "●", "●", "○"]


@pytest.mark.parametrize(
    ("ratio", "clipped", "word"),
    [
        (1.4, True, "clipped"),
        (1.4, False, "outside"),
        (0.6, None, "outside"),
        (1.1, False, "inside"),
        (1.0, None, "inside"),
    ],
)
def test_a_ratio_outside_the_range_is_clipped_only_where_the_trainer_says_so(ratio, clipped, word):
    token = TOKENS[0].__class__(
        token=1, text="x", decision=decision(-1, -1, ratio, clipped=clipped), alternatives=[]
    )
    assert table(told(31, 1, tokens=[token], before=[])).rows[0].numbers[-1] == word


def test_spaces_line_ends_and_control_characters_are_seen_and_do_nothing():
    assert visible(" a\tb\n") == "·a⇥b↵"
    assert visible("\x1b[2J\u202e\x00") == "␛[2J\ufffd␀"
    assert visible("") == "∅"


@pytest.mark.parametrize(
    ("share", "cells"),
    [(0.0, 0), (1.0, BAR), (0.5, BAR // 2), (7.0, BAR), (-1.0, 0), (math.nan, 0)],
)
def test_a_bar_is_as_long_as_its_share(share: float, cells: int):
    assert len(bar(share)) == cells
