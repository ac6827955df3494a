"""What the screens show of a run: a pure reducer from events to one frozen state, in bounded memory.

`requested` is where a command enters it, `reduce` where an event does. Its records have a method for each, `requesting`
and `after`, which give the same object where nothing changes: a request that is pending is not sent again.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from llamagym_tui.config import Mode, RunConfig, Value
from llamagym_tui.protocol import commands, events
from llamagym_tui.protocol.commands import AnyCommand
from llamagym_tui.returns import MeanReturn, ReturnSeries, mean_return
from llamagym_tui.state.pending import Inspection, Pending
from llamagym_tui.state.play_counts import Manner, PlayCounts
from llamagym_tui.state.prompts import Versions
from llamagym_tui.state.transcript import Transcript
from llamagym_tui.state.update_series import UpdateSeries
from llamagym_tui.state.warm_start import WarmStartState
from llamagym_tui.state.watching import StateView, Watching
from llamagym_tui.state.wheel import Wheel

HISTORY = (
    *("episodes", "dropped", "returns", "recent", "play", "marks", "updates", "stats", "history"),
    *("prompts", "evaluations", "comparison", "checkpoint", "saved", "film"),
)
"""The run's history: fields that outlive its sessions."""


class Mark(NamedTuple):
    """An episode at which a person or a roll back changed the run: a line in the chart."""

    episode: int
    label: str
    update: int
    """Updates of the policy by then."""


class Saved(NamedTuple):
    """The history as of the last checkpoint, from which a resumed run goes on."""

    stats: events.UpdateStats | None = None
    play: PlayCounts = PlayCounts()
    prompts: Versions = ()


@dataclass(frozen=True, kw_only=True)
class RunState:
    agent: str
    """As the user named it, until the trainer gives the agent's title."""
    model: str
    run_dir: str
    config: RunConfig
    """As the run began; `settings` has what was changed since."""
    phase: events.Phase = "loading"
    detail: str = "starting the trainer"
    """What is being done in this phase, for people."""
    pid: int | None = None
    run: events.RunStarted | None = None
    """None until the model is loaded."""

    mode: Mode = "train"
    mode_requested: Mode | None = None
    """Not confirmed yet, as all that is called requested."""
    pause_requested: bool | None = None
    """True: to pause, False: to go on."""
    system_prompt: str | None = None
    """As the trainer has it; None: not known yet."""
    prompt_version: int = 0
    prompt_requested: str | None = None
    prompts: Versions = ()
    """System prompts of the run, with what was played under each."""
    pending: Pending = field(default_factory=Pending)
    watching: Watching = field(default_factory=Watching)
    wheel: Wheel = field(default_factory=Wheel)
    view: StateView = field(default_factory=StateView)
    inspection: Inspection = field(default_factory=Inspection)
    warm_start: WarmStartState = field(default_factory=WarmStartState)
    transcript: Transcript = field(default_factory=Transcript)
    watched: events.EpisodeStarted | None = None
    """The watched episode under way or last."""

    episodes: int = 0
    dropped: int = 0
    """Episodes that failed, and count in nothing else."""
    episodes_per_s: float = 0.0
    returns: ReturnSeries = field(default_factory=ReturnSeries)
    recent: tuple[float, ...] = ()
    """Last returns of the present mode and prompt, at most `RECENT`."""
    described: str = ""
    """Their mean in the agent's words; empty: not known yet."""
    play: PlayCounts = field(default_factory=PlayCounts)
    marks: tuple[Mark, ...] = ()
    updates: int = 0
    stats: events.UpdateStats | None = None
    history: UpdateSeries = field(default_factory=UpdateSeries)
    map_layout: events.PolicyMapLaidOut | None = None
    """The agent's policy map, or why there is none; None: it has none, or it is not known yet."""
    mapped: events.PolicyMapped | None = None
    """The newest policy on its map."""
    film: tuple[events.PolicyMapped, ...] = ()
    """Some maps of the run, of rising updates: the first one, and the two newest; at most `reduce.MAX_FRAMES`."""
    moved: MovedEpisode | None = None
    """By the last update."""
    map_watched: bool = False
    """Whether the trainer updates the map closely."""
    evaluations: tuple[events.EvaluationFinished, ...] = ()
    """Results, at most `MAX_EVALUATIONS`, the newest last."""
    comparison: events.PromptsCompared | None = None
    """The last one of two prompts."""
    weighed: events.ConversationWeighed | None = None
    """The policy's last action probabilities in a person's own game."""
    checkpoint: events.CheckpointSaved | None = None
    saved: Saved = field(default_factory=Saved)
    settings: dict[str, Value] = field(default_factory=dict)
    """Settings that were changed live, by their dotted names."""
    collapse: str = ""
    """The last warning that the policy has collapsed, until a roll back or another setting."""
    stopping: bool = False
    """Whether the trainer is to write its checkpoint and end."""
    failure: str = ""
    """Why the run ended badly, for people; empty while it did not."""
    finished: events.RunFinished | None = None
    recorded: bool = False
    """Whether the events come from a run's file: then there is no trainer."""

    @property
    def live(self) -> bool:
        ended = self.failure or self.finished is not None or self.phase in ("stopped", "failed")
        return not (ended or self.recorded)

    @property
    def mode_intended(self) -> Mode:
        """The mode that was requested last, confirmed or not."""
        return self.mode if self.mode_requested is None else self.mode_requested

    @property
    def pause_intended(self) -> bool:
        return self.phase == "paused" if self.pause_requested is None else self.pause_requested

    @property
    def training(self) -> bool:
        """Whether quitting now would interrupt PPO."""
        return self.live and self.run is not None and self.mode == "train"

    @property
    def prompt_awaits_reset(self) -> bool:
        """Whether the watched episode still has an older prompt than the confirmed one."""
        return (
            self.live
            and self.watched is not None
            and self.watched.prompt_version < self.prompt_version
        )

    @property
    def n_envs(self) -> int:
        """Environments that are stepped together; 0 while it is not known."""
        changed = self.settings.get("n_envs")
        return int(changed) if changed is not None else self.run.n_envs if self.run else 0

    @property
    def manner(self) -> Manner:
        generation = self.config.generation
        names = ("temperature", "policy", "normalization", "max_new_tokens")
        now = {
            name: self.settings.get(f"generation.{name}", getattr(generation, name))
            for name in names
        }
        rule = str(now["policy"]) + (f" {now['normalization']}" if now["policy"] == "score" else "")
        return Manner(
            self.prompt_version,
            float(now["temperature"]),
            f"{rule}, {now['max_new_tokens']} tokens",
        )

    @property
    def map_is_present(self) -> bool:
        """Whether the newest map is of the policy after the last update."""
        return self.mapped is not None and self.mapped.update == self.updates

    @property
    def return_unit(self) -> str:
        return self.run.return_unit if self.run else ""

    @cached_property
    def recent_mean(self) -> MeanReturn | None:
        return mean_return(self.recent)


def initial_state(config: RunConfig) -> RunState:
    return RunState(
        agent=config.agent,
        model=config.model,
        run_dir=config.run_dir,
        config=config,
        mode=config.mode,
        system_prompt=config.system_prompt,
    )


def requested(state: RunState, command: AnyCommand) -> RunState:
    """The state after a command was requested; the same object if it is pending already."""
    match command:
        case commands.SetMode():
            return (
                state
                if command.mode == state.mode_intended
                else replace(state, mode_requested=command.mode)
            )
        case commands.Pause() | commands.Resume():
            pause = isinstance(command, commands.Pause)
            return state if pause == state.pause_intended else replace(state, pause_requested=pause)
        case commands.SetSystemPrompt():
            return replace(state, prompt_requested=command.system_prompt)
        case commands.Stop():
            return replace(state, stopping=True)
        case commands.Watch() | commands.WatchNext() | commands.SetPace() | commands.Step():
            return with_records(state, watching=state.watching.requesting(command))
        case commands.TakeWheel() | commands.Act() | commands.LetGo():
            return with_records(state, wheel=state.wheel.requesting(command))
        case commands.DrawStates():
            return with_records(state, view=state.view.requesting(command))
        case commands.InspectTurn():
            return with_records(state, inspection=state.inspection.requesting(command))
        case commands.WarmStart() | commands.CancelWarmStart():
            return with_records(state, warm_start=state.warm_start.requesting(command))
        case _:
            return with_records(state, pending=state.pending.requesting(command))


def with_records(state: RunState, **records: Any) -> RunState:
    """The state with other records, by field names; the same object if all are those that it has."""
    changed = {
        name: record for name, record in records.items() if record is not getattr(state, name)
    }
    return replace(state, **changed) if changed else state


def with_history(state: RunState, other: RunState) -> RunState:
    """The state with the run's history of another one; what holds now, and requests, stay."""
    history: dict[str, Any] = {name: getattr(other, name) for name in HISTORY}
    return replace(state, **history)


def restarted(state: RunState, *, new_run: bool = False) -> RunState:
    """The state of a run while its trainer is started again; or a `new_run` in its place, which has no history."""
    return replace(
        with_history(state, initial_state(state.config)) if new_run else state,
        phase="loading",
        detail="starting the trainer again",
        run=None,
        settings={},
        collapse="",
        watched=None,
        watching=Watching(),
        wheel=Wheel(),
        view=StateView(),
        failure="",
        finished=None,
        transcript=state.transcript.note("The trainer is started again."),
    )
