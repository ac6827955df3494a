"""The pure reducer: what an event changes in a run's state, and which of its records take the event in."""

from typing import assert_never

from msgspec.structs import replace

from llamagym_tui.protocol import events
from llamagym_tui.protocol.events import AnyEvent
from llamagym_tui.settings import FINAL, RunConfig, flat, with_measured
from llamagym_tui.state import prompts
from llamagym_tui.state.comparison import prompts_text
from llamagym_tui.state.pending import Pending
from llamagym_tui.state.prompts import PromptEdit
from llamagym_tui.state.returns import RECENT, counted, evaluated_return, left_text, with_unit
from llamagym_tui.state.run import Mark, RunState
from llamagym_tui.state.transcript import clipped
from llamagym_tui.state.watching import watched_text
from llamagym_tui.state.wheel import WheelState

MAX_EVALUATIONS = 8
"""Most results of evaluations that are kept; the oldest go first."""
CORRECTED = (
    "You acted in this episode: it is saved as a demonstration and left out of the mean return; your turns are not "
    "trained on."
)
"""The notice at the end of an episode in which a person acted."""
MAX_FRAMES = 40
"""Most maps that are kept of the run's film, the first and the two newest among them."""
MAX_MARKS = 32
"""Most marks that are kept of the chart; the oldest go first."""


def trainer_lost(state: RunState, message: str) -> RunState:
    """The state after the trainer process has ended without an event that says so."""
    return _ended(replace(state, phase="failed", failure=state.failure or message))


def reduce(state: RunState, event: AnyEvent) -> RunState:
    """The state after an event.

    A record of the state that takes the event in does so by its method `after`.
    """
    match event:
        case events.TokensStreamed() | events.EpisodeDropped():
            return replace(state, transcript=state.transcript.after(event))
        case events.ObservationShown() | events.EpisodeFinished() | events.ActionsProbed():
            return replace(
                state,
                view=state.view.after(event),
                transcript=state.transcript.after(event),
            )
        case events.TurnFinished():
            return replace(
                state,
                view=state.view.after(event),
                wheel=state.wheel.after(event),
                transcript=state.transcript.after(event),
            )
        case events.EpisodeStarted():
            return replace(state, watched=event, transcript=state.transcript.after(event))
        case events.StateDrawn():
            return replace(state, view=state.view.after(event))
        case events.EpisodesCounted():
            return _episodes_counted(state, event)
        case events.UpdateFinished():
            return replace(
                state,
                updates=event.update,
                stats=event.stats,
                returns=replace(state.returns, effect=event.stats.design_effect),
                history=state.history.add(event),
                episodes=max(state.episodes, event.episodes),
                batch_turns=0,
                progress=None,
            )
        case events.Hello():
            return replace(state, pid=event.pid, detail="loading the libraries")
        case events.PhaseChanged():
            return _phase_changed(state, event)
        case events.Progressed():
            return replace(state, progress=event)
        case events.RunStarted():
            return _run_started(state, event)
        case events.WatchChanged():
            changed = replace(
                state, watching=state.watching.after(event), view=state.view.after(event)
            )
            return _noted(changed, watched_text(event, state.n_envs))
        case events.PaceChanged():
            return replace(state, watching=state.watching.after(event))
        case events.WheelTaken():
            note = f"You have the wheel of environment {event.env + 1:,}, from its next turn on."
            return _noted(replace(state, wheel=state.wheel.after(event)), note)
        case events.WheelLetGo():
            reason = f": {event.reason}" if event.reason else ""
            return _noted(
                replace(state, wheel=state.wheel.after(event)), f"The agent acts again{reason}."
            )
        case events.ActionAwaited():
            return replace(state, wheel=state.wheel.after(event))
        case events.EpisodeCorrected():
            return _noted(state, CORRECTED)
        case events.TurnInspected():
            return replace(state, inspection=state.inspection.after(event))
        case events.PromptChanged():
            return _prompt_changed(state, event)
        case events.ModeChanged():
            return _mode_changed(state, event)
        case events.SettingsChanged():
            return _settings_changed(state, event)
        case events.SettingsMeasured(values=values, reasons=reasons):
            measured = replace(state, config=with_measured(state.config, values, reasons))
            return _noted(
                measured, f"Measured in the first batch: {clipped(measured_text(event))}."
            )
        case events.PolicyMapLaidOut():
            return replace(state, map_layout=event, mapped=None)
        case events.PolicyMapped():
            edit = None if state.edit is None else state.edit.mapped(event)
            film = _with_frame(state.film, event)
            return replace(state, mapped=event, film=film, edit=edit)
        case events.PolicyMapWatched():
            return replace(state, pending=state.pending.after(event), map_watched=event.on)
        case events.EvaluationFinished():
            return _evaluation_finished(state, event)
        case events.PromptsCompared():
            compared = replace(state, pending=state.pending.after(event), comparison=event)
            return _noted(compared, prompts_text(event, state.prompts, state.run))
        case events.EvaluationCancelled():
            note = f"The evaluation was cancelled after {event.played:,} of {counted(event.episodes, 'episode')}."
            cancelled = replace(
                state,
                pending=state.pending.after(event),
                warm_start=state.warm_start.after(event),
            )
            return _noted(cancelled, clipped(event.why) or note)
        case events.ConversationProbed():
            return replace(state, pending=state.pending.after(event), probed=event)
        case events.DemonstrationsRead():
            trains_on = f"{counted(event.episodes, 'episode')}, {counted(event.turns, 'turn')}"
            return _noted(state, f"A warm start trains on {trains_on}: {event.path}")
        case events.WarmStartProgressed():
            left = left_text(event.left_s)
            detail = f"step {event.step:,} of {event.steps:,}, loss {event.loss:.3f}{left}"
            return replace(state, warm_start=state.warm_start.after(event), detail=detail)
        case events.WarmStartFinished():
            trained = replace(state, warm_start=state.warm_start.after(event))
            outdated = _outdated(trained, "before the warm start")
            return _marked(outdated, "warm start", warm_start_text(event))
        case events.WarmStartEvaluated():
            return _warm_start_evaluated(state, event)
        case events.CheckpointSaved():
            return _checkpoint_saved(state, event)
        case events.RolledBack():
            answered = replace(state, pending=state.pending.after(event))
            rolled_back = _gone_back(answered, event.update)
            return _marked(
                rolled_back, "rolled back", f"to update {event.update:,}; {event.reason}"
            )
        case events.WarningRaised():
            return _warning_raised(state, event)
        case events.EventsLeftOut():
            were = "was" if event.count == 1 else "were"
            lines = f"{counted(event.count, 'line')} {were}"
            return _noted(
                state, f"{lines} not shown: the screen did not keep up, and the run did not wait."
            )
        case events.SessionFailed():
            return _ended(replace(state, phase="failed", failure=clipped(event.message)))
        case events.RunFinished():
            return _ended(replace(state, phase="stopped", detail="", finished=event))
        case _:
            assert_never(event)


def _evaluation_finished(state: RunState, event: events.EvaluationFinished) -> RunState:
    """Keep a result of an evaluation."""
    evaluated = replace(
        _with_evaluation(state, event),
        pending=state.pending.after(event),
        warm_start=state.warm_start.after(event),
    )
    text = _evaluation_text(event, state.return_unit)
    return _noted(evaluated, f"{text}{prompts.played_by(event, state.prompts)}")


def _warm_start_evaluated(state: RunState, event: events.WarmStartEvaluated) -> RunState:
    """Keep the result of the evaluation after a warm start, and compare it with the one before."""
    evaluated = replace(
        _with_evaluation(state, event.after), warm_start=state.warm_start.after(event)
    )
    text = comparison_text(event, state.return_unit)
    return _noted(evaluated, f"{text}{prompts.played_by(event.after, state.prompts)}.")


def _with_evaluation(state: RunState, found: events.EvaluationFinished) -> RunState:
    """The state with another result of an evaluation."""
    evaluations = (*state.evaluations, found)
    return replace(state, evaluations=evaluations[-MAX_EVALUATIONS:])


def _checkpoint_saved(state: RunState, event: events.CheckpointSaved) -> RunState:
    """Take a checkpoint; one that the person asked for is noted."""
    written = replace(
        state,
        pending=state.pending.after(event),
        checkpoint=event,
        prompts_at_checkpoint=state.prompts,
        unwritten="",
    )
    if not state.pending.checkpoint:
        return written
    return _noted(written, f"Checkpoint written, after update {event.update:,}.")


def _warning_raised(state: RunState, event: events.WarningRaised) -> RunState:
    """Note a warning, which may refuse a request."""
    message = clipped(event.message)
    collapse = state.collapse
    if event.collapsed:
        collapse = f"After update {state.updates:,}: {message}"
    warned = replace(
        state,
        pending=state.pending.after(event),
        watching=state.watching.after(event),
        wheel=state.wheel.after(event),
        warm_start=state.warm_start.after(event),
        collapse=collapse,
        unwritten=message if event.unwritten else state.unwritten,
    )
    return _noted(warned, f"Warning: {message}")


def warm_start_text(event: events.WarmStartFinished) -> str:
    """A warm start in one line."""
    what = "demonstration" if event.method == "sft" else "preference pair"
    stats = event.stats
    how = "cancelled after" if stats.cancelled else "trained in"
    return (
        f"{counted(stats.demonstrations, what)}, {how} {counted(stats.steps, 'step')} "
        f"and {stats.elapsed_s:,.0f} s; loss {stats.first_loss:.3f} → {stats.last_loss:.3f}"
    )


def progress_text(event: events.Progressed) -> str:
    """Progress as ``reading prompts: 34 of 128, 8 s left``."""
    return f"{event.doing}: {event.done:,} of {event.total:,}{left_text(event.left_s)}"


def measured_text(event: events.SettingsMeasured) -> str:
    """The settings that the first batch has changed, with the reasons, as one line; one that it has not, if all are."""
    usual = flat(RunConfig(agent="", run_dir=""))
    reasons = list(event.reasons.values())
    of_changed = [
        why for name, why in event.reasons.items() if event.values.get(name) != usual.get(name)
    ]
    return "; ".join(of_changed or reasons[:1])


def comparison_text(event: events.WarmStartEvaluated, unit: str = "") -> str:
    """The change by a warm start, in one line."""
    before = event.before
    after = event.after
    if not before.episodes or not after.episodes:
        return f"Before and after the warm start cannot be compared: no episode ended in {before.elapsed_s:,.0f} s"
    played = f"{before.episodes:,} and {after.episodes:,} sampled episodes"
    if before.episodes == after.episodes:
        played = f"{counted(before.episodes, 'sampled episode')} each"
    return (
        f"Warm start: parse failures {before.parse_failure_rate:.1%} → {after.parse_failure_rate:.1%}, mean return "
        f"{evaluated_return(before).text} → {with_unit(evaluated_return(after).text, unit)}, over {played}"
    )


def _outdated(state: RunState, why: str) -> RunState:
    """Mark the evaluations as results of an earlier policy."""
    evaluations = tuple(replace(each, outdated=each.outdated or why) for each in state.evaluations)
    return replace(state, evaluations=evaluations)


def _phase_changed(state: RunState, event: events.PhaseChanged) -> RunState:
    """Enter a phase, which may confirm that a pause was requested to begin or to end."""
    is_paused = event.phase == "paused"
    is_confirmed = state.pause_requested == is_paused
    return replace(
        state,
        watching=state.watching.after(event),
        warm_start=state.warm_start.after(event),
        phase=event.phase,
        detail=event.detail,
        progress=None,
        pause_requested=None if is_confirmed else state.pause_requested,
        episodes_per_s=0.0 if is_paused else state.episodes_per_s,
    )


def _run_started(state: RunState, event: events.RunStarted) -> RunState:
    """Begin a session of the run."""
    is_new = not state.episodes
    state = _rewound(state, event)
    if is_new and state.config.origin:
        state = _marked(state, state.config.origin, "its curve begins here")
    if event.trained and event.mode == "train":
        state = _noted(state, f"Trained: {event.trained}.")
    return replace(
        state,
        settings={},  # a resumed run tells again what it has kept
        agent=event.agent,
        model=event.model,
        # The folder of a recorded run may have been moved since.
        run_dir=state.run_dir if state.recorded else event.run_dir,
        run=event,
        recent=(),  # the trainer begins again to count those that it puts in words, too
        described="",
        batch_turns=0,
        map_watched=False,
        mode=event.mode,
        system_prompt=event.system_prompt,
        prompt_version=event.prompt_version,
        prompts=prompts.taken(state.prompts, event.prompt_version, event.system_prompt),
        failure="",  # the events of a resumed run begin with the end of its earlier session
        finished=None,
    )


def _gone_back(state: RunState, update: int) -> RunState:
    """The state once the policy is that of an earlier update again, with that update's figures if they are kept."""
    stats = None
    for sample in state.history.samples:
        if sample.update == update:
            stats = sample.stats  # of several updates of this number, the last one
    outdated = _outdated(state, "before the roll back")
    return replace(
        outdated,
        updates=update,
        stats=stats,
        batch_turns=0,
        collapse="",
    )


def _rewound(state: RunState, event: events.RunStarted) -> RunState:
    """Rewind to the resumed checkpoint."""
    if state.episodes <= event.episodes:
        return replace(state, episodes=event.episodes, updates=event.updates)
    history = state.history.until(event.episodes)
    return replace(
        state,
        episodes=event.episodes,
        returns=state.returns.until(event.episodes),
        marks=_marks_until(state, event.episodes),
        updates=event.updates,
        stats=history.samples[-1].stats if history.samples else None,
        history=history,
        prompts=prompts.taken_back(state.prompts, state.prompts_at_checkpoint),
    )


def _marks_until(state: RunState, episode: int) -> tuple[Mark, ...]:
    """The marks without those after an episode."""
    return tuple(mark for mark in state.marks if mark.episode <= episode)


def _episodes_counted(state: RunState, event: events.EpisodesCounted) -> RunState:
    """Count more episodes, in all figures that they belong to."""
    recent = state.recent
    described = state.described
    batch_turns = state.batch_turns
    if event.mode == "train":
        batch_turns += sum(event.lengths)
    if event.prompt_version == state.prompt_version and event.mode == state.mode:
        recent = (*recent, *event.returns)
        recent = recent[-RECENT:]
        described = clipped(event.words) or described
    return replace(
        state,
        returns=state.returns.counted(event.returns, event.episodes),
        recent=recent,
        described=described,
        batch_turns=batch_turns,
        prompts=prompts.counted(state.prompts, event, state.updates),
        marks=_marks_until(state, event.episodes),
        episodes=event.episodes,
        dropped=event.dropped,
        episodes_per_s=event.episodes_per_s,
    )


def _prompt_changed(state: RunState, event: events.PromptChanged) -> RunState:
    """Take a prompt that the trainer has taken."""
    # An answer to an older request leaves the newer one pending.
    is_answer = state.prompt_requested == event.system_prompt
    changed = replace(
        state,
        system_prompt=event.system_prompt,
        prompt_version=event.prompt_version,
        prompt_requested=None if is_answer else state.prompt_requested,
        prompts=prompts.taken(state.prompts, event.prompt_version, event.system_prompt),
        edit=PromptEdit(
            version=event.prompt_version,
            version_before=state.prompt_version,
            episode=state.episodes,
            before=state.mapped,
        ),
    )
    label = f"prompt {prompts.named(changed.prompts, event.prompt_version)}"
    return _marked(changed, label, "applies from the next episode on")


def _mode_changed(state: RunState, event: events.ModeChanged) -> RunState:
    """Take a mode that the trainer has taken."""
    is_answer = state.mode_requested == event.mode
    changed = replace(
        state,
        mode=event.mode,
        mode_requested=None if is_answer else state.mode_requested,
    )
    meaning = "episodes train the model" if event.mode == "train" else "nothing is trained"
    return _marked(changed, event.mode, meaning)


def _settings_changed(state: RunState, event: events.SettingsChanged) -> RunState:
    """Take settings that the trainer has taken."""
    # The end of a schedule follows a new start, and is not named next to it.
    followers = {FINAL[name] for name in event.changes if name in FINAL}
    label = ", ".join(
        f"{name} {value}" for name, value in event.changes.items() if name not in followers
    )
    changed = replace(
        state,
        pending=state.pending.after(event),
        settings={**state.settings, **event.changes},
        collapse="",
    )
    return _marked(changed, label, "from now on")


def _with_frame(
    film: tuple[events.PolicyMapped, ...], mapped: events.PolicyMapped
) -> tuple[events.PolicyMapped, ...]:
    """The film with another map at its end, without maps of updates that were undone or are made again."""
    frames = [frame for frame in film if frame.update < mapped.update]
    frames.append(mapped)
    if len(frames) > MAX_FRAMES:
        # The map goes whose neighbours are closest together; the first one and the two newest stay.
        gaps = {
            index: frames[index + 1].update - frames[index - 1].update
            for index in range(1, MAX_FRAMES - 1)
        }
        surplus = min(gaps, key=lambda index: gaps[index])
        del frames[surplus]
    return tuple(frames)


def _noted(state: RunState, text: str) -> RunState:
    """The state with a notice in the conversation."""
    return replace(state, transcript=state.transcript.note(text))


def _marked(state: RunState, label: str, meaning: str) -> RunState:
    """The state with a notice and a mark; the recent mean and its words begin again, because the play has changed."""
    clipped_label = clipped(label)
    marks = (*state.marks, Mark(state.episodes, clipped_label, state.updates))
    return replace(
        state,
        recent=(),
        described="",
        marks=marks[-MAX_MARKS:],
        transcript=state.transcript.note(f"{clipped_label}: {clipped(meaning)}"),
    )


def _ended(state: RunState) -> RunState:
    """The state at the end of a session, in which nothing is pending, because nothing will be confirmed any more."""
    return replace(
        state,
        mode_requested=None,
        pause_requested=None,
        prompt_requested=None,
        pending=Pending(),
        watching=replace(
            state.watching, requested=None, turn_s_requested=None, step_requested=None
        ),
        wheel=WheelState(),
        warm_start=state.warm_start.ended(),
        inspection=replace(state.inspection, requested=None),
        stopping=False,
        episodes_per_s=0.0,
    )


def _evaluation_text(event: events.EvaluationFinished, unit: str) -> str:
    """The result of an evaluation, as one line."""
    mean = evaluated_return(event)
    how = "greedy" if event.greedy else "sampled"
    played = counted(mean.episodes, f"{how} episode")
    return f"Evaluation: mean return {with_unit(mean.text, unit)} over {played}"
