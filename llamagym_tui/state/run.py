"""What the screens show of a run: a pure reducer from events to one frozen state.

``RunState`` holds what the trainer confirmed and, apart from it, what was asked for and is not confirmed yet. Its
memory is bounded however long the run lasts. It knows neither Textual nor the process that sends the events.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from llamagym_tui.config import Mode, RunConfig, Value
from llamagym_tui.protocol.commands import AnyCommand
from llamagym_tui.protocol.events import (
    CheckpointSaved,
    ConversationWeighed,
    EpisodeStarted,
    EvaluationFinished,
    Phase,
    PolicyMapLaidOut,
    PolicyMapped,
    RunFinished,
    RunStarted,
    UpdateStats,
)
from llamagym_tui.returns import MeanReturn, ReturnSeries, mean_return
from llamagym_tui.state.pending import Asked, Inspection
from llamagym_tui.state.play_counts import Manner, PlayCounts
from llamagym_tui.state.prompts import Versions
from llamagym_tui.state.transcript import Transcript
from llamagym_tui.state.update_series import UpdateSeries
from llamagym_tui.state.warm_start import Teaching, asked_for
from llamagym_tui.state.watching import StateView, Watching
from llamagym_tui.state.wheel import Wheel

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
