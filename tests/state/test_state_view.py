"""What a screen knows of the drawing of the watched state."""

from __future__ import annotations

from llamagym_tui.protocol.events import (
    AnyEvent,
    EpisodeFinished,
    EpisodeStarted,
    ObservationShown,
    StateDrawn,
)
from llamagym_tui.settings import RunConfig
from llamagym_tui.state.reduce import reduce
from llamagym_tui.state.run import RunState, initial_state
from llamagym_tui.state.transcript import MAX_ENTRY, MAX_PLACES


def begun(episode: int) -> EpisodeStarted:
    return EpisodeStarted(episode=episode, system_prompt="p", prompt_version=0, mode="train")


def drawn(episode: int, turn: int) -> StateDrawn:
    return StateDrawn(episode=episode, turn=turn, text=f"{episode}.{turn}")


def shown(episode: int, turn: int) -> ObservationShown:
    return ObservationShown(episode=episode, turn=turn, text="?")


def ended(episode: int, length: int) -> EpisodeFinished:
    return EpisodeFinished(episode=episode, episode_return=1.0, length=length, end="terminated")


def after(*events: AnyEvent, state: RunState | None = None) -> RunState:
    state = state or initial_state(RunConfig(agent="blackjack", run_dir="/runs/demo"))
    for event in events:
        state = reduce(state, event)
    return state


def text(state: RunState) -> str | None:
    return state.view.drawn.text if state.view.drawn else None


def test_the_drawing_is_that_of_the_newest_step():
    state = after(begun(4), drawn(4, 0), shown(4, 0))
    assert (text(state), state.view.result) == ("4.0", None)
    assert text(after(drawn(4, 1), shown(4, 1), state=state)) == "4.1"


def test_the_last_state_stays_with_its_result_until_the_next_episode_is_told():
    end = ended(4, 1)
    state = after(begun(4), drawn(4, 0), shown(4, 0), drawn(4, 1), end)
    assert (text(state), state.view.result) == ("4.1", end)
    state = after(begun(5), state=state)
    assert (text(state), state.view.result) == ("4.1", end)
    state = after(drawn(5, 0), shown(5, 0), state=state)
    assert (text(state), state.view.result) == ("5.0", None)


def test_a_hostile_drawing_is_bounded():
    places = [(0, 1, "ice")] * 1_000
    event = StateDrawn(episode=0, turn=0, text="x" * 1_000_000, grounds=places)
    kept = after(event).view.drawn
    assert kept is not None
    assert len(kept.text) < MAX_ENTRY + 100
    assert len(kept.grounds) == MAX_PLACES
