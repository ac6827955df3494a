"""What a screen knows of a reply under inspection, and how it is worded; no event loop."""

from __future__ import annotations

from pathlib import Path

from llamagym_tui.protocol.commands import InspectTurn
from llamagym_tui.screens.inspector.texts import table
from llamagym_tui.state.reduce import reduce
from llamagym_tui.state.run import initial_state, requested
from tests import fakes
from tests.screens.inspected import told

ASK = InspectTurn(episode=31, turn=1)


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


def test_the_cursor_begins_where_admissible_replies_part():
    rows = table(told(31, 1))
    assert (rows.first, rows.rows[rows.first].name) == (1, "·1")
