"""What a screen knows of a reply under inspection, and how it is worded; no event loop."""

from __future__ import annotations

from pathlib import Path

import pytest

from llamagym_tui.protocol.commands import InspectTurn
from llamagym_tui.protocol.events import TurnInspected
from llamagym_tui.screens.inspector.texts import status, table
from llamagym_tui.state.reduce import reduce
from llamagym_tui.state.run import initial_state, requested
from tests import fakes
from tests.screens.inspected import TOKENS, decision, told

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
