"""What the run state keeps of the policy map, and of who looks at it."""

from __future__ import annotations

from pathlib import Path

from llamagym_tui.protocol.events import PolicyMapLaidOut, PolicyMapped
from llamagym_tui.state.reduce import reduce
from llamagym_tui.state.run import RunState, initial_state
from tests import fakes

LAYOUT = PolicyMapLaidOut(action_names=["stick", "hit"], signs=["S", "H"])


def mapped(update: int) -> PolicyMapped:
    return PolicyMapped(update=update, prompt_version=1, shares=[[0.5, 0.5]])


def running() -> RunState:
    return reduce(initial_state(fakes.config(Path("/runs/demo"))), fakes.run_started())


def test_the_newest_map_is_kept_and_a_new_layout_begins_without_one() -> None:
    state = running()
    for event in (LAYOUT, mapped(1), mapped(2)):
        state = reduce(state, event)
    assert (state.map_layout, state.mapped) == (LAYOUT, mapped(2))
    assert reduce(state, LAYOUT).mapped is None
