"""The pure reducer: a run's state after an event."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from llamagym_tui.config import FINAL
from llamagym_tui.protocol.events import (
    ActionAwaited,
    ActionsWeighed,
    AnyEvent,
    CheckpointSaved,
    ConversationWeighed,
    EpisodeCorrected,
    EpisodeFinished,
    EpisodesCounted,
    EpisodeStarted,
    EvaluationCancelled,
    EvaluationFinished,
    Hello,
    ModeChanged,
    ObservationShown,
    PaceChanged,
    PhaseChanged,
    PolicyMapLaidOut,
    PolicyMapped,
    PolicyMapWatched,
    PromptChanged,
    RolledBack,
    RunFinished,
    RunStarted,
    SessionFailed,
    SettingsChanged,
    StateDrawn,
    TokensStreamed,
    TurnFinished,
    TurnInspected,
    UpdateFinished,
    WarmStartFinished,
    WarmStartProgressed,
    WarningRaised,
    WatchChanged,
    WheelLetGo,
    WheelTaken,
)
from llamagym_tui.returns import RECENT, evaluated_return
from llamagym_tui.state import prompts
from llamagym_tui.state.pending import Asked
from llamagym_tui.state.play_counts import PlayCounts
from llamagym_tui.state.run import Mark, RunState, Saved
from llamagym_tui.state.transcript import clipped
from llamagym_tui.state.watching import watched_text
from llamagym_tui.state.wheel import Wheel

MAX_EVALUATIONS = 8
"""Results of evaluations kept; the oldest go first."""


CORRECTED = "You acted in this episode: it is a demonstration now, counts in no mean, and your turns are in no update."
"""Told at the end of an episode in which a person acted."""


MAX_MARKS = 32
"""Marks kept on the chart; the oldest go first."""


def trainer_lost(state: RunState, message: str) -> RunState:
    """The state after the trainer process ended without a word."""
    return _ended(replace(state, phase="failed", failure=state.failure or message))


def reduce(state: RunState, event: AnyEvent) -> RunState:
    """The state after an event."""
    if isinstance(event, CheckpointSaved) and state.asked.checkpoint:
        state = replace(state, transcript=state.transcript.note(f"Checkpoint written, after update {event.update:,}."))
    asked, watching = state.asked.answered(event), state.watching.answered(event)
    if asked != state.asked or watching is not state.watching:
        state = replace(state, asked=asked, watching=watching)
    if (wheel := state.wheel.answered(event)) is not state.wheel:
        state = replace(state, wheel=wheel)
    if (view := state.view.answered(event)) is not state.view:
        state = replace(state, view=view)
    if (teaching := state.teaching.heard(event)) is not state.teaching:
        state = replace(state, teaching=teaching)
    return _reduced(state, event)


def _reduced(state: RunState, event: AnyEvent) -> RunState:
    match event:
        case Hello():
            return replace(state, pid=event.pid, detail="the trainer is up")
        case PhaseChanged():
            return _phase_changed(state, event)
        case RunStarted():
            return _run_started(state, event)
        case EpisodeStarted():
            return replace(state, watched=event, transcript=state.transcript.tell(event))
        case ObservationShown() | ActionsWeighed() | TokensStreamed() | TurnFinished() | EpisodeFinished():
            return replace(state, transcript=state.transcript.tell(event))
        case EpisodesCounted():
            return _episodes_counted(state, event)
        case WatchChanged():
            return replace(state, transcript=state.transcript.note(watched_text(event, state.n_envs)))
        case WheelTaken():
            return _noted(state, f"You have the wheel of environment {event.env + 1:,}, from its next turn on.")
        case WheelLetGo():
            return _noted(state, f"The agent acts again{f': {event.reason}' if event.reason else ''}.")
        case EpisodeCorrected():
            return _noted(state, CORRECTED)
        case PaceChanged() | StateDrawn() | ActionAwaited():
            return state
        case TurnInspected():
            return replace(state, inspection=state.inspection.answered(event))
        case UpdateFinished():
            return _update_finished(state, event)
        case PromptChanged():
            return _prompt_changed(state, event)
        case ModeChanged():
            return _mode_changed(state, event)
        case PolicyMapLaidOut():
            return replace(state, map_layout=event, mapped=None)
        case PolicyMapped():
            return replace(state, mapped=event)
        case PolicyMapWatched():
            return replace(state, map_watched=event.on)
        case EvaluationFinished():
            return replace(
                state,
                evaluations=(*state.evaluations, event)[-MAX_EVALUATIONS:],
                transcript=state.transcript.note(_evaluation_text(event)),
            )
        case EvaluationCancelled():
            ended = f"The evaluation was cancelled after {event.played:,} of {event.episodes:,} episodes."
            return replace(state, transcript=state.transcript.note(ended))
        case ConversationWeighed():
            return replace(state, weighed=event)
        case WarmStartProgressed():
            return replace(state, detail=f"step {event.step:,} of {event.steps:,}, loss {event.loss:.3f}")
        case WarmStartFinished():
            taught = replace(state, play=PlayCounts())
            return _marked(taught, "warm start", clipped(warm_start_text(event)))
        case CheckpointSaved():
            return replace(state, checkpoint=event, saved=Saved(state.stats, state.play, state.prompts))
        case RolledBack():
            rolled = replace(state, updates=event.update, play=PlayCounts())
            return _marked(rolled, "rolled back", clipped(f"to update {event.update:,}; {event.reason}"))
        case SettingsChanged():
            return _settings_changed(state, event)
        case WarningRaised():
            message = clipped(event.message)
            return replace(state, warning=message, transcript=state.transcript.note(f"Warning: {message}"))
        case SessionFailed():
            return _ended(replace(state, phase="failed", failure=clipped(event.message)))
        case RunFinished():
            return _ended(replace(state, phase="stopped", detail="", finished=event, episodes_per_s=0.0))
        case _:
            assert_never(event)


def warm_start_text(event: WarmStartFinished) -> str:
    """What a warm start has done, for people."""
    how = "cancelled after" if event.cancelled else "trained in"
    return (
        f"{event.demonstrations:,} demonstrations, {how} {event.steps:,} steps and {event.elapsed_s:,.0f} s; "
        f"loss {event.first_loss:.3f} → {event.last_loss:.3f}"
    )


def _phase_changed(state: RunState, event: PhaseChanged) -> RunState:
    asked = state.pause_requested
    confirmed = asked is not None and asked == (event.phase == "paused")
    return replace(
        state,
        phase=event.phase,
        detail=event.detail,
        pause_requested=None if confirmed else asked,
        episodes_per_s=0.0 if event.phase == "paused" else state.episodes_per_s,
    )


def _run_started(state: RunState, event: RunStarted) -> RunState:
    state = _taken_up(state, event)
    same = (event.mode, event.prompt_version) == (state.mode, state.prompt_version)
    return replace(
        state,
        agent=event.agent,
        model=event.model,
        run_dir=event.run_dir,
        run=event,
        recent=state.recent if same else (),
        play=state.play.switched_to_inference() if event.mode == "inference" else state.play,
        map_watched=False,
        mode=event.mode,
        system_prompt=event.system_prompt,
        prompt_version=event.prompt_version,
        prompts=prompts.taken(state.prompts, event.prompt_version, event.system_prompt),
        failure="",  # in the events of a resumed run its earlier end comes before
        finished=None,
    )


def _taken_up(state: RunState, event: RunStarted) -> RunState:
    """The state at the checkpoint from which the run goes on: what came after it is lost, and told no more."""
    if event.episodes is None or event.updates is None:
        return state  # the next count tells
    if (lost := state.episodes - event.episodes) <= 0:
        return replace(state, episodes=event.episodes, updates=event.updates)
    return replace(
        state,
        episodes=event.episodes,
        returns=state.returns.until(event.episodes),
        recent=state.recent[: max(0, len(state.recent) - lost)],
        play=state.saved.play,
        marks=_marks_until(state, event.episodes),
        updates=event.updates,
        stats=state.saved.stats,
        history=state.history.until(event.episodes),
        prompts=prompts.taken_back(state.prompts, state.saved.prompts),
    )


def _marks_until(state: RunState, episode: int) -> tuple[Mark, ...]:
    return tuple(mark for mark in state.marks if mark.episode <= episode)


def _update_finished(state: RunState, event: UpdateFinished) -> RunState:
    return replace(
        state,
        updates=event.update,
        stats=event.stats,
        history=state.history.add(event),
        episodes=max(state.episodes, event.episodes),
    )


def _episodes_counted(state: RunState, event: EpisodesCounted) -> RunState:
    present = event.mode == state.mode and event.prompt_version == state.prompt_version
    recent = (*state.recent, *event.returns)[-RECENT:] if present else state.recent
    return replace(
        state,
        returns=state.returns.counted(event.returns, event.episodes),
        recent=recent,
        play=state.play.counted(event, state.manner) if event.prompt_version == state.prompt_version else state.play,
        prompts=prompts.counted(state.prompts, event),
        marks=_marks_until(state, event.episodes),
        episodes=event.episodes,
        env_steps=event.env_steps,
        episodes_per_s=event.episodes_per_s,
    )


def _prompt_changed(state: RunState, event: PromptChanged) -> RunState:
    # An answer to an older request leaves the newer one pending.
    asked = None if state.prompt_requested == event.system_prompt else state.prompt_requested
    changed = replace(
        state,
        system_prompt=event.system_prompt,
        prompt_version=event.prompt_version,
        prompt_requested=asked,
        prompts=prompts.taken(state.prompts, event.prompt_version, event.system_prompt),
    )
    return _marked(changed, f"prompt v{event.prompt_version}", "taken; the next episode has it")


def _mode_changed(state: RunState, event: ModeChanged) -> RunState:
    asked = None if state.mode_requested == event.mode else state.mode_requested
    play = state.play.switched_to_inference() if event.mode == "inference" != state.mode else state.play
    changed = replace(state, mode=event.mode, mode_requested=asked, play=play)
    meaning = "episodes train the model" if event.mode == "train" else "nothing is trained"
    return _marked(changed, event.mode, meaning)


def _settings_changed(state: RunState, event: SettingsChanged) -> RunState:
    followed = {FINAL[name] for name in event.changes if name in FINAL}
    label = ", ".join(f"{name} {value}" for name, value in event.changes.items() if name not in followed)
    changed = replace(state, settings={**state.settings, **event.changes})
    return _marked(changed, clipped(label), "from now on")


def _noted(state: RunState, text: str) -> RunState:
    return replace(state, transcript=state.transcript.note(clipped(text)))


def _marked(state: RunState, label: str, meaning: str) -> RunState:
    """A notice and a mark; the recent mean starts anew, for play is another now."""
    return replace(
        state,
        recent=(),
        marks=(*state.marks, Mark(state.episodes, label))[-MAX_MARKS:],
        transcript=state.transcript.note(f"{label}: {meaning}"),
    )


def _ended(state: RunState) -> RunState:
    """Nothing that was asked for will be confirmed any more."""
    return replace(
        state,
        mode_requested=None,
        pause_requested=None,
        prompt_requested=None,
        asked=Asked(),
        watching=state.watching.ended(),
        wheel=Wheel(),
        inspection=state.inspection.ended(),
        stopping=False,
        episodes_per_s=0.0,
    )


def _evaluation_text(event: EvaluationFinished) -> str:
    mean, how = evaluated_return(event), "greedy" if event.greedy else "sampled"
    within = f"; 95 % within {mean.interval_text}" if mean.episodes > 1 else ""
    plural = "" if mean.episodes == 1 else "s"
    return f"Evaluation: mean return {mean.text} over {mean.episodes:,} {how} episode{plural}{within}"
