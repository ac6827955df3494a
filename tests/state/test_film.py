"""Maps that the run state keeps: a filmstrip in bounded memory."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from llamagym_tui.protocol.events import PolicyMapLaidOut, PolicyMapped
from llamagym_tui.state.reduce import MAX_FRAMES, reduce
from llamagym_tui.state.run import RunState, initial_state
from tests import fakes

LAYOUT = PolicyMapLaidOut(action_names=["stick", "hit"], signs=["S", "H"])


def mapped(update: int) -> PolicyMapped:
    return PolicyMapped(update=update, prompt_version=1, shares=[[0.5, 0.5]])


def running() -> RunState:
    return reduce(initial_state(fakes.config(Path("/runs/demo"))), fakes.run_started())


def after(*events):
    state = running()
    for event in (LAYOUT, *events):
        state = reduce(state, event)
    return state


def updates(state) -> list[int]:
    return [frame.update for frame in state.film]


def test_a_film_keeps_the_first_and_the_newest_map_and_thins_out_evenly():
    film = updates(after(*(mapped(update) for update in range(401))))
    assert (len(film), film[0], film[-2:]) == (MAX_FRAMES, 0, [399, 400])
    gaps = [later - earlier for earlier, later in pairwise(film)]
    assert max(gaps) <= 32, "none is more than three times as far as the mean of ten"


def test_maps_of_updates_that_are_made_again_go():
    assert updates(after(mapped(1), mapped(2), mapped(3), mapped(2))) == [1, 2]
    assert updates(after(mapped(1), LAYOUT, mapped(2))) == [1, 2], "a resumed run"


def test_the_newest_map_is_kept_and_a_new_layout_begins_without_one() -> None:
    state = running()
    for event in (LAYOUT, mapped(1), mapped(2)):
        state = reduce(state, event)
    assert (state.map_layout, state.mapped) == (LAYOUT, mapped(2))
    assert reduce(state, LAYOUT).mapped is None
