"""The pure reducer: what an event changes in a run's state, and which of its records take the event in."""

from typing import assert_never

from msgspec.structs import replace

from llamagym_tui.protocol import commands, events
from llamagym_tui.protocol.events import AnyEvent
from llamagym_tui.settings import FINAL, with_measured
from llamagym_tui.state import prompts
from llamagym_tui.state.pending import Pending
from llamagym_tui.state.prompts import PromptEdit
from llamagym_tui.state.returns import RECENT, counted, left_text
from llamagym_tui.state.run import Inspection, Mark, RunState, WarmStartState
from llamagym_tui.state.texts import (
    comparison_text,
    evaluation_text,
    prompts_text,
    warm_start_text,
)
from llamagym_tui.state.transcript import clipped

MAX_EVALUATIONS = 8
"""Most results of evaluations that are kept; the oldest go first."""
CORRECTED = (
    "You acted in this episode: it is saved as a demonstration and left out of the mean return; your turns are not "
    "trained on."
)
"""The notice at the end of an episode in which a person acted."""
MAX_LOSSES = 7_200
"""Most losses of a warm start that are kept: an hour of them, if there are two in a second."""
MAX_FRAMES = 40
"""Most maps that are kept of the run's film, the first and the two newest among them."""
MAX_MARKS = 32
"""Most marks that are kept of the chart; the oldest go first."""


def trainer_lost(state: RunState, message: str) -> RunState:
    """The state after the trainer process has ended without an event that says so."""
    return _ended(replace(state, phase="failed", failure=state.failure or message))


def reduce(state: RunState, event: AnyEvent) -> RunState:
    """The state after an event."""
    pending = state.pending.after(event)
    is_answer = pending is not state.pending
    if is_answer:
        state = replace(state, pending=pending)
    if isinstance(event, events.WatchedEvent):
        return _watched(state, event)
    match event:
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
            return replace(state, detail="loading the libraries")
        case events.PhaseChanged():
            return _phase_changed(state, event)
        case events.Progressed():
            return replace(state, progress=event)
        case events.RunStarted():
            return _run_started(state, event)
        case events.WatchChanged(env=env):
            changed = replace(state, env=env, view=state.view.after(event))
            return _noted(changed, watched_text(changed))
        case events.PaceChanged(turn_s=turn_s):
            return replace(state, turn_s=turn_s)
        case events.WheelTaken():
            note = f"You have the wheel of environment {event.env + 1:,}, from its next turn on."
            return _noted(replace(state, wheel=event), note)
        case events.WheelLetGo():
            reason = f": {event.reason}" if event.reason else ""
            return _noted(
                replace(state, wheel=None, awaited=None), f"The model acts again{reason}."
            )
        case events.ActionAwaited():
            return replace(state, awaited=event)
        case events.EpisodeCorrected():
            return _noted(state, CORRECTED)
        case events.TurnInspected():
            if event.why_not:
                return replace(state, inspection=state.inspection._replace(refused=event))
            return replace(state, inspection=Inspection(found=event))
        case events.PromptChanged():
            return _prompt_changed(state, event)
        case events.ModeChanged():
            changed = replace(state, mode=event.mode)
            if event.mode == "train":
                return _marked(changed, "learning", "each batch trains the model again")
            return _marked(changed, "not learning", "the model only plays")
        case events.SettingsChanged():
            return _settings_changed(state, event)
        case events.SettingsMeasured(values=values, reasons=reasons):
            return replace(state, config=with_measured(state.config, values, reasons))
        case events.DepthMeasured():
            return replace(state, depth=event)
        case events.PolicyMapLaidOut():
            return replace(state, map_layout=event, mapped=None)
        case events.PolicyMapped():
            edit = None if state.edit is None else state.edit.mapped(event)
            film = _with_frame(state.film, event)
            return replace(state, mapped=event, film=film, edit=edit)
        case events.EvaluationFinished():
            text = evaluation_text(event, state.return_unit)
            return _noted(
                _with_evaluation(state, event), f"{text}{prompts.played_by(event, state.prompts)}"
            )
        case events.PromptsCompared():
            compared = replace(state, comparison=event)
            return _noted(compared, prompts_text(event, state.prompts, state.run))
        case events.EvaluationCancelled():
            return _evaluation_cancelled(state, event)
        case events.ConversationProbed():
            return replace(state, probed=event)
        case events.DemonstrationsRead():
            trains_on = f"{counted(event.episodes, 'episode')}, {counted(event.turns, 'turn')}"
            return _noted(state, f"A warm start trains on {trains_on}: {event.path}")
        case events.WarmStartProgressed():
            left = left_text(event.left_s)
            detail = f"step {event.step:,} of {event.steps:,}, loss {event.loss:.3f}{left}"
            losses = (*state.warm_start.losses, event.loss)[-MAX_LOSSES:]
            warm_start = state.warm_start._replace(losses=losses)
            return replace(state, warm_start=warm_start, detail=detail)
        case events.WarmStartFinished():
            warm_start = state.warm_start._replace(result=event)
            outdated = _outdated(replace(state, warm_start=warm_start), "before the warm start")
            return _marked(outdated, "warm start", warm_start_text(event))
        case events.WarmStartEvaluated():
            warm_start = state.warm_start._replace(evaluated=event)
            evaluated = _with_evaluation(replace(state, warm_start=warm_start), event.after)
            text = comparison_text(event, state.return_unit)
            return _noted(evaluated, f"{text}{prompts.played_by(event.after, state.prompts)}.")
        case events.CheckpointSaved():
            written = replace(
                state, checkpoint=event, prompts_at_checkpoint=state.prompts, unwritten=""
            )
            note = f"Checkpoint written, after update {event.update:,}."
            return _noted(written, note) if is_answer else written
        case events.RolledBack():
            rolled_back = _gone_back(state, event.update)
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


def _watched(state: RunState, event: events.WatchedEvent) -> RunState:
    """Take in an event of the watched environment."""
    awaited = state.awaited
    if awaited and isinstance(event, events.TurnFinished):
        is_its = (awaited.episode, awaited.turn) == (event.episode, event.turn)
        awaited = None if is_its else awaited
    return replace(
        state,
        watched=event if isinstance(event, events.EpisodeStarted) else state.watched,
        view=state.view.after(event),
        awaited=awaited,
        transcript=state.transcript.after(event),
    )


def _evaluation_cancelled(state: RunState, event: events.EvaluationCancelled) -> RunState:
    """Note the reason; a warm start that is under way goes on without its evaluations."""
    asked = state.pending.of(commands.WarmStart)
    if asked is not None:
        pending = state.pending.without(asked)
        if state.warm_start.result is None:
            pending = pending.requesting(replace(asked, episodes=0))
        state = replace(state, pending=pending)
    note = f"The evaluation was cancelled after {event.played:,} of {counted(event.episodes, 'episode')}."
    return _noted(state, clipped(event.why) or note)


def _with_evaluation(state: RunState, found: events.EvaluationFinished) -> RunState:
    """The state with another result of an evaluation."""
    evaluations = (*state.evaluations, found)
    return replace(state, evaluations=evaluations[-MAX_EVALUATIONS:])


def _warning_raised(state: RunState, event: events.WarningRaised) -> RunState:
    """Note a warning, which may refuse a request."""
    message = clipped(event.message)
    collapse = state.collapse
    if event.collapsed:
        collapse = f"After update {state.updates:,}: {message}"
    warm_start = state.warm_start
    if event.refused == "warm_start":
        warm_start = warm_start._replace(refused=message)
    warned = replace(
        state,
        warm_start=warm_start,
        collapse=collapse,
        unwritten=message if event.unwritten else state.unwritten,
    )
    return _noted(warned, f"Warning: {message}")


def _outdated(state: RunState, why: str) -> RunState:
    """Mark the evaluations as results of an earlier policy."""
    evaluations = tuple(replace(each, outdated=each.outdated or why) for each in state.evaluations)
    return replace(state, evaluations=evaluations)


def _phase_changed(state: RunState, event: events.PhaseChanged) -> RunState:
    """Enter a phase."""
    warm_start = state.warm_start
    if event.phase == "warm_starting" and warm_start.result is not None:
        warm_start = WarmStartState()
    return replace(
        state,
        warm_start=warm_start,
        phase=event.phase,
        detail=event.detail,
        progress=None,
        episodes_per_s=0.0 if event.phase == "paused" else state.episodes_per_s,
    )


def _run_started(state: RunState, event: events.RunStarted) -> RunState:
    """Begin a session of the run."""
    is_new = not state.episodes
    state = _rewound(state, event)
    if is_new and state.config.origin:
        state = _marked(state, state.config.origin, "its curve begins here")
    return replace(
        state,
        settings={},  # a resumed run tells again what it has kept
        agent=event.agent,
        model=event.model,
        # The folder of a recorded run may have been moved since.
        run_dir=state.run_dir if state.recorded else event.run_dir,
        run=event,
        recent=(),
        batch_turns=0,
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
    batch_turns = state.batch_turns
    if event.mode == "train":
        batch_turns += sum(event.lengths)
    if event.prompt_version == state.prompt_version and event.mode == state.mode:
        recent = (*recent, *event.returns)
        recent = recent[-RECENT:]
    return replace(
        state,
        returns=state.returns.counted(event.returns, event.episodes),
        recent=recent,
        batch_turns=batch_turns,
        prompts=prompts.counted(state.prompts, event, state.updates),
        marks=_marks_until(state, event.episodes),
        episodes=event.episodes,
        dropped=event.dropped,
        episodes_per_s=event.episodes_per_s,
    )


def _prompt_changed(state: RunState, event: events.PromptChanged) -> RunState:
    """Take a prompt that the trainer has taken."""
    changed = replace(
        state,
        system_prompt=event.system_prompt,
        prompt_version=event.prompt_version,
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


def _settings_changed(state: RunState, event: events.SettingsChanged) -> RunState:
    """Take settings that the trainer has taken."""
    # The end of a schedule follows a new start, and is not named next to it.
    followers = {FINAL[name] for name in event.changes if name in FINAL}
    label = ", ".join(
        f"{name} {value}" for name, value in event.changes.items() if name not in followers
    )
    changed = replace(
        state,
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
    """The state with a notice and a mark; the recent mean begins again, because the play has changed."""
    clipped_label = clipped(label)
    marks = (*state.marks, Mark(state.episodes, clipped_label, state.updates))
    return replace(
        state,
        recent=(),
        marks=marks[-MAX_MARKS:],
        transcript=state.transcript.note(f"{clipped_label}: {clipped(meaning)}"),
    )


def _ended(state: RunState) -> RunState:
    """The state at the end of a session, in which nothing is pending, because nothing will be confirmed any more."""
    return replace(
        state,
        pending=Pending(),
        wheel=None,
        awaited=None,
        episodes_per_s=0.0,
    )


def watched_text(state: RunState) -> str:
    """The watched environment, for people."""
    of_all = f" of {state.n_envs:,}" if state.n_envs else ""
    return f"watching environment {state.env + 1:,}{of_all}"
