"""What a screen knows of the drawing of the watched state."""

from __future__ import annotations

from llamagym_tui.config import RunConfig
from llamagym_tui.protocol.commands import DrawStates, Watch
from llamagym_tui.protocol.event_log import ConversationBudget
from llamagym_tui.protocol.events import (
    AnyEvent,
    EpisodeFinished,
    EpisodeStarted,
    Event,
    ObservationShown,
    StateDrawn,
    WatchChanged,
)
from llamagym_tui.state.reduce import reduce
from llamagym_tui.state.run import RunState, initial_state, requested, restarted
from llamagym_tui.state.transcript import MAX_ENTRY
from llamagym_tui.state.watching import MAX_PLACES, StateView


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


def test_a_step_without_a_drawing_is_not_shown_with_that_of_another():
    state = after(drawn(4, 0), shown(4, 0))
    assert text(after(shown(4, 1), state=state)) is None
    assert text(after(shown(5, 0), state=state)) is None


def test_another_environment_begins_without_a_drawing():
    state = after(drawn(4, 0), shown(4, 0))
    assert text(after(WatchChanged(kind="env", env=0, awaits_failure=True), state=state)) == "4.0"
    assert text(after(WatchChanged(kind="env", env=1), state=state)) is None


def test_a_drawing_that_is_asked_for_after_the_end_has_the_result():
    end = ended(4, 1)
    assert after(end, drawn(4, 1)).view.result == end
    assert after(end, drawn(4, 0)).view.result is None


def test_drawings_are_asked_for_once_and_anew_of_a_new_trainer():
    state = after()
    asked = requested(state, DrawStates(on=True))
    assert asked.view.requested
    assert requested(asked, DrawStates(on=True)) is asked
    assert requested(state, DrawStates(on=False)) is state
    assert requested(asked, Watch(env=1)).view.requested
    assert restarted(asked).view == StateView()


def test_a_hostile_drawing_is_bounded():
    event = StateDrawn(episode=0, turn=0, text="x" * 1_000_000, marks=[(0, 1)] * 1_000)
    kept = after(event).view.drawn
    assert kept is not None
    assert len(kept.text) < MAX_ENTRY + 100
    assert len(kept.marks) == MAX_PLACES


def test_drawings_are_kept_in_the_log_with_the_episodes_that_are():
    budget = ConversationBudget()
    told: list[Event] = [begun(0), drawn(0, 0), shown(0, 0)]
    assert [budget.kept(event) for event in told] == [[event] for event in told]
    assert not budget.kept(drawn(1, 0)), "its episode is not kept"
