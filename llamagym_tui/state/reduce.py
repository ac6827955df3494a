"""The pure reducer: which records of a run's state an event goes to.

Each of them has a method `after`, which gives the same object where an event changes nothing.
"""

from dataclasses import replace
from typing import Any, assert_never

from msgspec import structs

from llamagym_tui.config import FINAL, RunConfig, flat, with_measured
from llamagym_tui.protocol import events
from llamagym_tui.protocol.events import AnyEvent
from llamagym_tui.returns import RECENT, counted, evaluated_return, with_unit
from llamagym_tui.state import prompts
from llamagym_tui.state.comparison import prompts_text
from llamagym_tui.state.pending import Pending
from llamagym_tui.state.play_counts import PlayCounts
from llamagym_tui.state.run import Mark, RunState, Saved, with_records
from llamagym_tui.state.transcript import clipped
from llamagym_tui.state.watching import watched_text
from llamagym_tui.state.wheel import Wheel

MAX_EVALUATIONS = 8
"""Results of evaluations kept; the oldest go first."""
CORRECTED = (
    "You acted in this episode: it is saved as a demonstration and left out of the mean return; your turns are not "
    "trained on."
)
"""Note at the end of an episode in which a person acted."""
LEFT_OUT: dict[events.LeftOut, str] = {
    "slow_screen": "events of the conversation are left out here: the screen did not keep up, and the run did not wait",
    "long_run": "events of the conversation are left out above: the log of a run keeps some of its episodes",
    "full_disk": "events are missing above: the disk was full",
}
"""How many events are missing where, and why."""
MAX_FRAMES = 40
"""Maps kept of the run's film, the first and the two newest among them."""
MAX_MARKS = 32
"""Marks kept on the chart; the oldest go first."""


def trainer_lost(state: RunState, message: str) -> RunState:
    """The state after the trainer process ended without an event."""
    return _ended(replace(state, phase="failed", failure=state.failure or message))


def reduce(state: RunState, event: AnyEvent) -> RunState:
    """The state after an event: which of its records take it, and what it changes of the run itself."""
    match event:
        case events.TokensStreamed() | events.ActionsWeighed() | events.EpisodeDropped():
            return _after(state, event, "transcript")
        case events.ObservationShown() | events.EpisodeFinished():
            return _after(state, event, "view", "transcript")
        case events.TurnFinished():
            return _after(state, event, "wheel", "transcript")
        case events.EpisodeStarted():
            return _after(state, event, "transcript", watched=event)
        case events.StateDrawn():
            return _after(state, event, "view")
        case events.EpisodesCounted():
            return _episodes_counted(state, event)
        case events.UpdateFinished():
            episodes, history = max(state.episodes, event.episodes), state.history.add(event)
            after = replace(
                state, updates=event.update, stats=event.stats, history=history, episodes=episodes
            )
            return replace(after, moved=event.moved)
        case events.Hello():
            return replace(state, pid=event.pid, detail="the trainer is up")
        case events.PhaseChanged():
            return _phase_changed(_after(state, event, "watching", "warm_start"), event)
        case events.RunStarted():
            return _run_started(state, event)
        case events.WatchChanged():
            return _noted(
                _after(state, event, "watching", "view"), watched_text(event, state.n_envs)
            )
        case events.PaceChanged():
            return _after(state, event, "watching")
        case events.WheelTaken():
            note = f"You have the wheel of environment {event.env + 1:,}, from its next turn on."
            return _noted(_after(state, event, "wheel"), note)
        case events.WheelLetGo():
            note = f"The agent acts again{f': {event.reason}' if event.reason else ''}."
            return _noted(_after(state, event, "wheel"), note)
        case events.ActionAwaited():
            return _after(state, event, "wheel")
        case events.EpisodeCorrected():
            return _noted(state, CORRECTED)
        case events.TurnInspected():
            return _after(state, event, "inspection")
        case events.PromptChanged():
            return _prompt_changed(state, event)
        case events.ModeChanged():
            return _mode_changed(state, event)
        case events.SettingsChanged():
            return _settings_changed(_after(state, event, "pending"), event)
        case events.SettingsMeasured(values=values, reasons=reasons):
            measured = replace(state, config=with_measured(state.config, values, reasons))
            return _noted(
                measured, f"Measured in the first batch: {clipped(measured_text(event))}."
            )
        case events.ObservationsDistinguished():
            return _noted(
                state, f"{'Warning: ' if event.are_few else ''}{distinguished_text(event)}"
            )
        case events.PolicyMapLaidOut():
            return replace(state, map_layout=event, mapped=None)
        case events.PolicyMapped():
            return replace(state, mapped=event, film=_with_frame(state.film, event))
        case events.PolicyMapWatched():
            return _after(state, event, "pending", map_watched=event.on)
        case events.EvaluationFinished():
            evaluations = (*state.evaluations, event)[-MAX_EVALUATIONS:]
            evaluated = _after(state, event, "pending", "warm_start", evaluations=evaluations)
            return _noted(
                evaluated,
                _evaluation_text(event, state.return_unit)
                + prompts.played_by(event, state.prompts),
            )
        case events.PromptsCompared():
            text = prompts_text(event, state.prompts, state.run)
            return _noted(_after(state, event, "pending", comparison=event), text)
        case events.EvaluationCancelled():
            note = f"The evaluation was cancelled after {event.played:,} of {counted(event.episodes, 'episode')}."
            note = clipped(event.why) or note
            return _noted(_after(state, event, "pending", "warm_start"), note)
        case events.ConversationWeighed():
            return _after(state, event, "pending", weighed=event)
        case events.DemonstrationsRead():
            trains_on = f"{counted(event.episodes, 'episode')}, {counted(event.turns, 'turn')}"
            return _noted(state, f"A warm start trains on {trains_on}: {event.path}")
        case events.WarmStartProgressed():
            detail = f"step {event.step:,} of {event.steps:,}, loss {event.loss:.3f}"
            return _after(state, event, "warm_start", detail=detail)
        case events.WarmStartFinished():
            trained = _after(state, event, "warm_start", play=PlayCounts())
            return _marked(
                _outdated(trained, "before the warm start"), "warm start", warm_start_text(event)
            )
        case events.WarmStartEvaluated():
            evaluations = (*state.evaluations, event.after)[-MAX_EVALUATIONS:]
            compared = _after(state, event, "warm_start", evaluations=evaluations)
            return _noted(
                compared,
                f"{comparison_text(event, state.return_unit)}{prompts.played_by(event.after, state.prompts)}.",
            )
        case events.CheckpointSaved():
            saved = Saved(state.stats, state.play, state.prompts)
            written = _after(state, event, "pending", checkpoint=event, saved=saved)
            requested = state.pending.checkpoint
            return (
                _noted(written, f"Checkpoint written, after update {event.update:,}.")
                if requested
                else written
            )
        case events.RolledBack():
            rolled = _gone_back(_after(state, event, "pending"), event.update)
            return _marked(rolled, "rolled back", f"to update {event.update:,}; {event.reason}")
        case events.WarningRaised():
            message = clipped(event.message)
            found = (
                f"After update {state.updates:,}: {message}" if event.collapsed else state.collapse
            )
            warned = _after(
                state, event, "pending", "watching", "wheel", "warm_start", collapse=found
            )
            return _noted(warned, f"Warning: {message}")
        case events.EventsLeftOut():
            return _noted(state, f"{event.count:,} {LEFT_OUT[event.reason]}.")
        case events.SessionFailed():
            return _ended(replace(state, phase="failed", failure=clipped(event.message)))
        case events.RunFinished():
            return _ended(replace(state, phase="stopped", detail="", finished=event))
        case _:
            assert_never(event)


def _after(state: RunState, event: AnyEvent, *records: str, **fields: Any) -> RunState:
    return with_records(
        state, **{name: getattr(state, name).after(event) for name in records}, **fields
    )


def warm_start_text(event: events.WarmStartFinished) -> str:
    stats = event.stats
    how = ("cancelled after " if stats.cancelled else "trained in ") + counted(stats.steps, "step")
    what = "demonstration" if event.method == "sft" else "preference pair"
    return (
        f"{counted(stats.demonstrations, what)}, {how} and {stats.elapsed_s:,.0f} s; "
        f"loss {stats.first_loss:.3f} → {stats.last_loss:.3f}"
    )


def measured_text(event: events.SettingsMeasured) -> str:
    """What the first batch has decided, as one line; without what stays at its default, unless all does."""
    usual = flat(RunConfig(agent="", run_dir=""))
    other = [
        why for name, why in event.reasons.items() if event.values.get(name) != usual.get(name)
    ]
    return "; ".join(other or list(event.reasons.values())[:1])


def distinguished_text(event: events.ObservationsDistinguished) -> str:
    """How many observations the model distinguishes, and what to do if they are few, as one sentence."""
    advice = (
        ", too few to learn much from: name each number in the observation, write it with fewer digits, warm-start on "
        "demonstrations, or take a larger model"
    )
    of = f"{event.distinguished:,} of {counted(event.observations, 'observation')} of the first batch"
    return f"The model distinguishes {of}{advice if event.are_few else ''}."


def comparison_text(event: events.WarmStartEvaluated, unit: str = "") -> str:
    """What a warm start has changed, as one line."""
    before, after = event.before, event.after
    if not before.episodes or not after.episodes:
        return f"Before and after the warm start cannot be compared: no episode ended in {before.elapsed_s:,.0f} s"
    n = f"{before.episodes:,} and {after.episodes:,} sampled episodes"
    if before.episodes == after.episodes:
        n = f"{counted(before.episodes, 'sampled episode')} each"
    return (
        f"Warm start: parse failures {before.parse_failure_rate:.1%} → {after.parse_failure_rate:.1%}, mean return "
        f"{evaluated_return(before).text} → {with_unit(evaluated_return(after).text, unit)}, over {n}"
    )


def _outdated(state: RunState, why: str) -> RunState:
    """Mark the evaluations as those of an earlier policy."""
    evaluations = tuple(
        structs.replace(each, outdated=each.outdated or why) for each in state.evaluations
    )
    return replace(state, evaluations=evaluations)


def _phase_changed(state: RunState, event: events.PhaseChanged) -> RunState:
    requested = state.pause_requested
    confirmed = requested is not None and requested == (event.phase == "paused")
    return replace(
        state,
        phase=event.phase,
        detail=event.detail,
        pause_requested=None if confirmed else requested,
        episodes_per_s=0.0 if event.phase == "paused" else state.episodes_per_s,
    )


def _run_started(state: RunState, event: events.RunStarted) -> RunState:
    begins = not state.episodes
    state = _rewound(state, event)
    if begins and state.config.origin:
        state = _marked(state, state.config.origin, "its curve begins here")
    return replace(
        state,
        agent=event.agent,
        model=event.model,
        run_dir=state.run_dir
        if state.recorded
        else event.run_dir,  # a recorded one may have been moved
        run=event,
        recent=(),  # as the trainer counts them, for they are put in words there
        described="",
        play=state.play.switched_to_inference() if event.mode == "inference" else state.play,
        map_watched=False,
        mode=event.mode,
        system_prompt=event.system_prompt,
        prompt_version=event.prompt_version,
        prompts=prompts.taken(state.prompts, event.prompt_version, event.system_prompt),
        failure="",  # in the events of a resumed run its earlier end comes before
        finished=None,
    )


def _gone_back(state: RunState, update: int) -> RunState:
    """The state once the policy is the one after an earlier update, with that update's figures if they are kept."""
    then = (sample.stats for sample in reversed(state.history.samples) if sample.update == update)
    left = _outdated(state, "before the roll back")
    return replace(
        left, updates=update, stats=next(then, None), play=PlayCounts(), moved=None, collapse=""
    )


def _rewound(state: RunState, event: events.RunStarted) -> RunState:
    """Rewind to the resumed checkpoint."""
    if state.episodes <= event.episodes:
        return replace(state, episodes=event.episodes, updates=event.updates)
    return replace(
        state,
        episodes=event.episodes,
        returns=state.returns.until(event.episodes),
        play=state.saved.play,
        marks=_marks_until(state, event.episodes),
        updates=event.updates,
        stats=state.saved.stats,
        history=state.history.until(event.episodes),
        prompts=prompts.taken_back(state.prompts, state.saved.prompts),
    )


def _marks_until(state: RunState, episode: int) -> tuple[Mark, ...]:
    return tuple(mark for mark in state.marks if mark.episode <= episode)


def _episodes_counted(state: RunState, event: events.EpisodesCounted) -> RunState:
    is_of_prompt = event.prompt_version == state.prompt_version
    is_present = is_of_prompt and event.mode == state.mode
    return replace(
        state,
        returns=state.returns.counted(event.returns, event.episodes),
        recent=(*state.recent, *event.returns)[-RECENT:] if is_present else state.recent,
        described=clipped(event.words) or state.described if is_present else state.described,
        play=state.play.counted(event, state.manner, state.updates) if is_of_prompt else state.play,
        prompts=prompts.counted(state.prompts, event, state.updates),
        marks=_marks_until(state, event.episodes),
        episodes=event.episodes,
        dropped=event.dropped,
        episodes_per_s=event.episodes_per_s,
    )


def _prompt_changed(state: RunState, event: events.PromptChanged) -> RunState:
    # An answer to an older request leaves the newer one pending.
    requested = None if state.prompt_requested == event.system_prompt else state.prompt_requested
    changed = replace(
        state,
        system_prompt=event.system_prompt,
        prompt_version=event.prompt_version,
        prompt_requested=requested,
        prompts=prompts.taken(state.prompts, event.prompt_version, event.system_prompt),
    )
    label = f"prompt {prompts.named(changed.prompts, event.prompt_version)}"
    return _marked(changed, label, "taken; the next episode has it")


def _mode_changed(state: RunState, event: events.ModeChanged) -> RunState:
    requested = None if state.mode_requested == event.mode else state.mode_requested
    play = (
        state.play.switched_to_inference()
        if event.mode == "inference" != state.mode
        else state.play
    )
    changed = replace(state, mode=event.mode, mode_requested=requested, play=play)
    meaning = "episodes train the model" if event.mode == "train" else "nothing is trained"
    return _marked(changed, event.mode, meaning)


def _settings_changed(state: RunState, event: events.SettingsChanged) -> RunState:
    followed = {
        FINAL[name] for name in event.changes if name in FINAL
    }  # the end of a schedule that follows its start
    label = ", ".join(
        f"{name} {value}" for name, value in event.changes.items() if name not in followed
    )
    changed = replace(state, settings={**state.settings, **event.changes}, collapse="")
    return _marked(changed, label, "from now on")


def _with_frame(
    film: tuple[events.PolicyMapped, ...], mapped: events.PolicyMapped
) -> tuple[events.PolicyMapped, ...]:
    """The film with another map at its end; maps of updates that were undone, or are made again, go."""
    frames = [*(frame for frame in film if frame.update < mapped.update), mapped]
    if len(frames) > MAX_FRAMES:  # the one goes of which the neighbours are the nearest
        del frames[
            min(
                range(1, MAX_FRAMES - 1),
                key=lambda at: frames[at + 1].update - frames[at - 1].update,
            )
        ]
    return tuple(frames)


def _noted(state: RunState, text: str) -> RunState:
    return replace(state, transcript=state.transcript.note(text))


def _marked(state: RunState, label: str, meaning: str) -> RunState:
    """A notice and a mark; the recent mean and its words begin again, because the play has changed."""
    label, meaning = clipped(label), clipped(meaning)
    return replace(
        state,
        recent=(),
        described="",
        marks=(*state.marks, Mark(state.episodes, label, state.updates))[-MAX_MARKS:],
        transcript=state.transcript.note(f"{label}: {meaning}"),
    )


def _ended(state: RunState) -> RunState:
    """Nothing that is pending will be confirmed any more."""
    return replace(
        state,
        mode_requested=None,
        pause_requested=None,
        prompt_requested=None,
        pending=Pending(),
        watching=replace(
            state.watching, requested=None, turn_s_requested=None, step_requested=None
        ),
        wheel=Wheel(),
        warm_start=state.warm_start.ended(),
        inspection=replace(state.inspection, requested=None),
        stopping=False,
        episodes_per_s=0.0,
    )


def _evaluation_text(event: events.EvaluationFinished, unit: str) -> str:
    mean, how = evaluated_return(event), "greedy" if event.greedy else "sampled"
    within = f"; 95 % interval {mean.interval_text}" if mean.episodes > 1 else ""
    played = counted(mean.episodes, f"{how} episode")
    return f"Evaluation: mean return {with_unit(mean.text, unit)} over {played}{within}"
