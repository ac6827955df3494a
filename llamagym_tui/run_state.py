"""What the screens show of a run: a pure reducer from events to one frozen state.

``RunState`` holds what the trainer confirmed and, apart from it, what was asked for and is not confirmed yet. Its
memory is bounded however long the run lasts. It knows neither Textual nor the process that sends the events.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, assert_never

from llamagym_tui import prompt_versions
from llamagym_tui.asked import Asked
from llamagym_tui.config import Mode, RunConfig
from llamagym_tui.inspection import Inspection
from llamagym_tui.live_settings import FINAL, Value
from llamagym_tui.play_counts import Manner, PlayCounts
from llamagym_tui.prompt_versions import Versions
from llamagym_tui.protocol.commands import AnyCommand
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
    Phase,
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
    UpdateStats,
    WarmStartFinished,
    WarmStartProgressed,
    WarningRaised,
    WatchChanged,
    WheelLetGo,
    WheelTaken,
)
from llamagym_tui.return_series import RECENT, MeanReturn, ReturnSeries, evaluated_return, mean_return
from llamagym_tui.teaching import Teaching, asked_for
from llamagym_tui.transcript import Transcript, clipped
from llamagym_tui.update_series import UpdateSeries
from llamagym_tui.watching import StateView, Watching, watched_text
from llamagym_tui.wheel import Wheel

MAX_EVALUATIONS = 8
"""Results of evaluations kept; the oldest go first."""
CORRECTED = "You acted in this episode: it is a demonstration now, counts in no mean, and your turns are in no update."
"""Told at the end of an episode in which a person acted."""
MAX_MARKS = 32
"""Marks kept on the chart; the oldest go first."""
HISTORY = (
    *("episodes", "env_steps", "returns", "recent", "play", "marks", "updates", "stats", "history"),
    *("prompts", "evaluations", "checkpoint", "saved"),
)
"""Fields that tell what a run has been so far: they outlive its sessions."""


class Mark(NamedTuple):
    """An episode at which the run took another way, by a person's hand or by a roll back: a line in the chart."""

    episode: int
    label: str


class Saved(NamedTuple):
    """What was known when the last checkpoint was written: a run that goes on from there has no more."""

    stats: UpdateStats | None = None
    play: PlayCounts = PlayCounts()
    prompts: Versions = ()


@dataclass(frozen=True, kw_only=True)
class RunState:
    """A run as it is known so far."""

    agent: str
    """As the user named it, until the trainer gives the agent's title."""
    model: str
    run_dir: str
    config: RunConfig
    """As the run was begun; `settings` has what was changed since."""
    phase: Phase = "loading"
    detail: str = "starting the trainer"
    """What is being done in this phase, for people."""
    pid: int | None = None
    """Process id of the trainer."""
    run: RunStarted | None = None
    """What the trainer told when the model was loaded; None before."""

    mode: Mode = "train"
    mode_requested: Mode | None = None
    """Asked for and not confirmed."""
    pause_requested: bool | None = None
    """True: a pause was asked for, False: going on was; None: nothing unconfirmed."""
    system_prompt: str | None = None
    """As the trainer has it; None: not known yet."""
    prompt_version: int = 0
    prompt_requested: str | None = None
    """Asked for and not confirmed."""
    prompts: Versions = ()
    """System prompts that the trainer took, with what was played under each."""
    asked: Asked = field(default_factory=Asked)
    """Other commands that are not confirmed."""
    watching: Watching = field(default_factory=Watching)
    """What is watched, and how fast."""
    wheel: Wheel = field(default_factory=Wheel)
    """Who acts in the watched environment."""
    view: StateView = field(default_factory=StateView)
    """The drawing of the watched state."""
    inspection: Inspection = field(default_factory=Inspection)
    """The reply that is looked at token by token."""
    watched: EpisodeStarted | None = None
    """The watched episode under way or last."""

    episodes: int = 0
    env_steps: int = 0
    episodes_per_s: float = 0.0
    returns: ReturnSeries = field(default_factory=ReturnSeries)
    recent: tuple[float, ...] = ()
    """Last returns of the present mode and prompt, at most `RECENT`."""
    play: PlayCounts = field(default_factory=PlayCounts)
    """How the policy played in either mode."""
    marks: tuple[Mark, ...] = ()
    updates: int = 0
    stats: UpdateStats | None = None
    """Figures of the last update."""
    history: UpdateSeries = field(default_factory=UpdateSeries)
    """Figures of the updates so far."""
    map_layout: PolicyMapLaidOut | None = None
    """The agent's policy map, or why there is none; None: it has none, or the trainer has not told yet."""
    mapped: PolicyMapped | None = None
    """The policy on its map, as told last."""
    map_watched: bool = False
    """Whether the map is told closely."""
    evaluations: tuple[EvaluationFinished, ...] = ()
    """Results, at most `MAX_EVALUATIONS`, the newest last."""
    weighed: ConversationWeighed | None = None
    """The policy's last word on a conversation that a person plays."""
    checkpoint: CheckpointSaved | None = None
    saved: Saved = field(default_factory=Saved)
    settings: dict[str, Value] = field(default_factory=dict)
    """Settings that were changed live, by their dotted names."""
    transcript: Transcript = field(default_factory=Transcript)
    warning: str = ""
    """The last warning."""
    teaching: Teaching = field(default_factory=Teaching)
    """The warm start that was asked for last, or under way."""
    stopping: bool = False
    """Whether the trainer was asked to write its checkpoint and end."""
    failure: str = ""
    """Why the run ended badly, for people; empty while it did not."""
    finished: RunFinished | None = None
    recorded: bool = False
    """Whether the events come from a run's file: then there is no trainer."""

    @property
    def live(self) -> bool:
        """Whether a trainer is there to take commands."""
        ended = self.failure or self.finished is not None or self.phase in ("stopped", "failed")
        return not (ended or self.recorded)

    @property
    def mode_intended(self) -> Mode:
        """The mode that was asked for last, confirmed or not."""
        return self.mode if self.mode_requested is None else self.mode_requested

    @property
    def pause_intended(self) -> bool:
        """Whether a pause was asked for last, confirmed or not."""
        return self.phase == "paused" if self.pause_requested is None else self.pause_requested

    @property
    def training(self) -> bool:
        """Whether quitting now would interrupt PPO."""
        return self.live and self.run is not None and self.mode == "train"

    @property
    def prompt_awaits_reset(self) -> bool:
        """Whether the watched episode still has an older prompt than the confirmed one."""
        return self.live and self.watched is not None and self.watched.prompt_version < self.prompt_version

    @property
    def n_envs(self) -> int:
        """Environments that are stepped together; 0 while it is not known."""
        changed = self.settings.get("n_envs")
        return int(changed) if changed is not None else self.run.n_envs if self.run else 0

    @property
    def manner(self) -> Manner:
        """In which the policy plays now: its prompt, and how replies are sampled."""
        generation = self.config.generation
        names = ("temperature", "policy", "normalization", "max_new_tokens")
        now = {name: self.settings.get(f"generation.{name}", getattr(generation, name)) for name in names}
        rule = str(now["policy"]) + (f" {now['normalization']}" if now["policy"] == "score" else "")
        return Manner(self.prompt_version, float(now["temperature"]), f"{rule}, {now['max_new_tokens']} tokens")

    @property
    def recent_mean(self) -> MeanReturn | None:
        """Mean return of the last episodes under the present mode and prompt."""
        return mean_return(self.recent)


def initial_state(config: RunConfig) -> RunState:
    """The state before the trainer is up."""
    return RunState(
        agent=config.agent,
        model=config.model,
        run_dir=config.run_dir,
        config=config,
        mode=config.mode,
        system_prompt=config.system_prompt,
    )


def mode_asked(state: RunState, mode: Mode) -> RunState:
    """The state after a mode was asked for, the same if it was asked for already."""
    return state if mode == state.mode_intended else replace(state, mode_requested=mode)


def pause_asked(state: RunState, pause: bool) -> RunState:
    """The state after a pause, or its end, was asked for, the same if it was asked for already."""
    return state if pause == state.pause_intended else replace(state, pause_requested=pause)


def prompt_asked(state: RunState, system_prompt: str) -> RunState:
    """The state after a system prompt was asked for."""
    return replace(state, prompt_requested=system_prompt)


def command_asked(state: RunState, command: AnyCommand) -> RunState:
    """The state after something without a field of its own was asked for, the same if it was asked for already."""
    if (view := state.view.asking(command)) is not state.view:
        return replace(state, view=view)
    if (wheel := state.wheel.asking(command)) is not state.wheel:
        return replace(state, wheel=wheel)
    asked, watching = state.asked.asking(command), state.watching.asking(command)
    inspection = state.inspection.asking(command)
    same = asked is state.asked and watching is state.watching and inspection is state.inspection
    return state if same else replace(state, asked=asked, watching=watching, inspection=inspection)


def warm_start_asked(state: RunState, *, evaluates: bool) -> RunState:
    """The state after a warm start was asked for."""
    return replace(state, teaching=asked_for(evaluates=evaluates))


def warm_start_cancelled(state: RunState) -> RunState:
    """The state after the end of a warm start was asked for."""
    return replace(state, teaching=replace(state.teaching, cancelling=True))


def stop_asked(state: RunState) -> RunState:
    """The state after the trainer was asked to end."""
    return replace(state, stopping=True)


def with_history(state: RunState, other: RunState) -> RunState:
    """The state with what another one knows of the run so far; what holds now, and what was asked for, stays."""
    history: dict[str, Any] = {name: getattr(other, name) for name in HISTORY}
    return replace(state, **history)


def restarted(state: RunState, *, anew: bool = False) -> RunState:
    """The state of a run whose trainer is started again; what was seen of it stays.

    Args:
        state: of the run whose trainer is gone.
        anew: whether another run begins in its place, which has no history.
    """
    return replace(
        with_history(state, initial_state(state.config)) if anew else state,
        phase="loading",
        detail="starting the trainer again",
        run=None,
        settings={},
        watched=None,
        watching=Watching(),
        wheel=Wheel(),
        view=StateView(),
        failure="",
        finished=None,
        transcript=state.transcript.note("The trainer is started again."),
    )


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
        prompts=prompt_versions.taken(state.prompts, event.prompt_version, event.system_prompt),
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
        prompts=prompt_versions.taken_back(state.prompts, state.saved.prompts),
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
        prompts=prompt_versions.counted(state.prompts, event),
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
        prompts=prompt_versions.taken(state.prompts, event.prompt_version, event.system_prompt),
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
