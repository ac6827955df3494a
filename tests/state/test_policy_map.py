"""What the run state keeps of the policy map, and of who looks at it."""

from __future__ import annotations

from pathlib import Path

from llamagym_tui.protocol.commands import WatchPolicyMap
from llamagym_tui.protocol.events import PolicyMapLaidOut, PolicyMapped, PolicyMapWatched
from llamagym_tui.state.reduce import reduce
from llamagym_tui.state.run import RunState, initial_state, requested
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


def test_looking_is_pending_until_it_is_confirmed_and_asked_for_once() -> None:
    state = running()
    asked = requested(state, WatchPolicyMap(on=True))
    assert (asked.pending.policy_map, asked.map_watched) == (True, False)
    assert requested(asked, WatchPolicyMap(on=True)) is asked
    confirmed = reduce(asked, PolicyMapWatched(on=True))
    assert (confirmed.pending.policy_map, confirmed.map_watched) == (None, True)


def test_an_answer_to_an_older_wish_leaves_the_newer_one_pending() -> None:
    state = requested(requested(running(), WatchPolicyMap(on=True)), WatchPolicyMap(on=False))
    state = reduce(state, PolicyMapWatched(on=True))
    assert state.pending.policy_map is False
    assert reduce(state, PolicyMapWatched(on=False)).pending.policy_map is None


def test_a_trainer_that_is_started_again_does_not_know_that_somebody_looks() -> None:
    state = reduce(running(), PolicyMapWatched(on=True))
    assert not reduce(state, fakes.run_started()).map_watched
