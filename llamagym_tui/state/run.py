"""The run as the screens show it: one frozen state in bounded memory, made from events by a pure reducer.

A command enters it by `requested`, an event by `reduce`. Its records have a method for each, `requesting` and `after`,
which return the same object if nothing changes: a request that is pending is not sent again.
"""

from functools import cached_property
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from llamagym_tui.protocol import commands, events
from llamagym_tui.protocol.commands import AnyCommand
from llamagym_tui.settings import Mode, RunConfig, Value
from llamagym_tui.state.pending import Inspection, Pending
from llamagym_tui.state.prompts import PromptEdit, Versions
from llamagym_tui.state.returns import MeanReturn, ReturnSeries, mean_return
from llamagym_tui.state.transcript import Transcript
from llamagym_tui.state.update_series import UpdateSeries
from llamagym_tui.state.warm_start import WarmStartState
from llamagym_tui.state.watching import StateView, Watching
from llamagym_tui.state.wheel import WheelState


class Mark(NamedTuple):
    """An episode at which a person or a roll back changed the run, shown as a line in the chart."""

    episode: int
    label: str
    update: int
    """The number of updates by then."""


class RunState(Struct, frozen=True, kw_only=True, dict=True):
    """Everything that is known of a run; a field called ``…_requested`` has a request that is not confirmed."""

    agent: str
    """The agent as the user named it, then by the title that the trainer gives."""
    model: str
    run_dir: str
    config: RunConfig
    """Settings with which the run began; `settings` has what was changed since."""
    phase: events.Phase = "loading"
    detail: str = "starting the trainer"
    """The work of this phase, for people."""
    progress: events.Progressed | None = None
    """Its progress, if it takes seconds."""
    pid: int | None = None
    """Process id of the trainer."""
    run: events.RunStarted | None = None
    """The event with which the trainer began to play; None until the model is loaded."""

    mode: Mode = "train"
    mode_requested: Mode | None = None
    pause_requested: bool | None = None
    """True: to pause, False: to go on."""
    system_prompt: str | None = None
    """The system prompt that the trainer has, once it is known."""
    prompt_version: int = 0
    """Number of that prompt among the versions of the run."""
    prompt_requested: str | None = None
    prompts: Versions = ()
    """All system prompts of the run, with what was played under each."""
    prompts_at_checkpoint: Versions = ()
    """The same when the last checkpoint was written."""
    edit: PromptEdit | None = None
    """The last edit of the prompt, if there was one."""
    pending: Pending = field(default_factory=Pending)
    watching: Watching = field(default_factory=Watching)
    wheel: WheelState = field(default_factory=WheelState)
    view: StateView = field(default_factory=StateView)
    inspection: Inspection = field(default_factory=Inspection)
    warm_start: WarmStartState = field(default_factory=WarmStartState)
    transcript: Transcript = field(default_factory=Transcript)
    watched: events.EpisodeStarted | None = None
    """The watched episode that is under way, or the last one."""

    episodes: int = 0
    """The number of episodes that have been played."""
    dropped: int = 0
    """The number of episodes that failed, which count in nothing else."""
    episodes_per_s: float = 0.0
    returns: ReturnSeries = field(default_factory=ReturnSeries)
    """Returns of all episodes."""
    recent: tuple[float, ...] = ()
    """The last returns in the present mode and under the present prompt, at most `RECENT`."""
    described: str = ""
    """Their mean in the agent's words; empty: not known yet."""
    marks: tuple[Mark, ...] = ()
    updates: int = 0
    """The number of updates of the policy."""
    stats: events.UpdateStats | None = None
    """Figures of the last update."""
    history: UpdateSeries = field(default_factory=UpdateSeries)
    """Figures of the updates so far."""
    batch_turns: int = 0
    """Turns of the training episodes that have ended since the last update."""
    map_layout: events.PolicyMapLaidOut | None = None
    """The agent's policy map, or the reason why it cannot be used; None if it has none, or until it is known."""
    mapped: events.PolicyMapped | None = None
    """The newest policy on its map."""
    film: tuple[events.PolicyMapped, ...] = ()
    """Some of the run's maps in the order of their updates, the first one and the two newest among them; at most
    `reduce.MAX_FRAMES`."""
    map_watched: bool = False
    """True while the trainer computes the map often."""
    evaluations: tuple[events.EvaluationFinished, ...] = ()
    """Results of evaluations, the newest last; at most `MAX_EVALUATIONS`."""
    match: events.MatchPlayed | None = None
    """The model's part of a match against the seats of a class."""
    comparison: events.PromptsCompared | None = None
    """The last comparison of two prompts."""
    probed: events.ConversationProbed | None = None
    """The policy's last action probabilities in a person's own game."""
    checkpoint: events.CheckpointSaved | None = None
    """The last checkpoint."""
    settings: dict[str, Value] = field(default_factory=dict)
    """Values of the settings that were changed live, by their dotted names."""
    collapse: str = ""
    """The last warning that the policy has collapsed; empty: there was none since a roll back or a changed setting."""
    unwritten: str = ""
    """The last warning that something of the run cannot be written; empty: there was none since a checkpoint."""
    stopping: bool = False
    """True once the trainer was asked to write its checkpoint and end."""
    failure: str = ""
    """Why the run ended badly, for people; empty: it has not ended badly."""
    finished: events.RunFinished | None = None
    recorded: bool = False
    """True if the events come from a run's file, without a trainer."""

    @property
    def live(self) -> bool:
        """True while there is a trainer and the run has not ended."""
        ended = self.failure or self.finished is not None or self.phase in ("stopped", "failed")
        return not (ended or self.recorded)

    @property
    def mode_intended(self) -> Mode:
        """The mode that was requested last, confirmed or not."""
        return self.mode if self.mode_requested is None else self.mode_requested

    @property
    def pause_intended(self) -> bool:
        """True if a pause was requested last, confirmed or not."""
        return self.phase == "paused" if self.pause_requested is None else self.pause_requested

    @property
    def training(self) -> bool:
        """True if quitting now would interrupt PPO."""
        return self.live and self.run is not None and self.mode == "train"

    @property
    def is_kept(self) -> bool:
        """True if it can be resumed after an orderly end: it has a checkpoint, or something to write."""
        has_begun = self.episodes > 0 or any(
            isinstance(entry.fact, events.TurnFinished) for entry in self.transcript.entries
        )
        return has_begun or self.checkpoint is not None or self.config.resume

    @property
    def prompt_awaits_reset(self) -> bool:
        """True if the watched episode began with an older prompt than the confirmed one."""
        return (
            self.live
            and self.watched is not None
            and self.watched.prompt_version < self.prompt_version
        )

    @property
    def n_envs(self) -> int:
        """The number of environments that are stepped together; 0 while it is not known."""
        changed = self.settings.get("n_envs")
        if changed is not None:
            return int(changed)
        if self.config.measured.get("n_envs"):
            return self.config.n_envs
        return self.run.n_envs if self.run is not None else 0

    @property
    def batch_progress(self) -> tuple[int, int]:
        """Turns of the next update's batch that have been played, as far as is known, and all that it is to have."""
        wanted = int(self.settings.get("ppo.batch_size") or self.config.ppo.batch_size)
        played = self.batch_turns
        if self.progress is not None and self.progress.doing == "collecting turns":
            played = max(played, self.progress.done)
        return min(played, wanted), wanted

    @property
    def map_is_present(self) -> bool:
        """True if the newest map is of the policy after the last update."""
        return self.mapped is not None and self.mapped.update == self.updates

    @property
    def return_unit(self) -> str:
        """The unit of a return; empty if it has none, or until it is known."""
        return self.run.return_unit if self.run else ""

    @cached_property
    def recent_mean(self) -> MeanReturn | None:
        """The mean of the recent returns; None if there are none."""
        mean = mean_return(self.recent)
        if mean is None:
            return None
        wider = max(1.0, self.returns.effect) ** 0.5
        return mean._replace(stderr=mean.stderr * wider)


def initial_state(config: RunConfig) -> RunState:
    """The state of a run before its first event."""
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
            if command.mode == state.mode_intended:
                return state
            return replace(state, mode_requested=command.mode)
        case commands.Pause() | commands.Resume():
            pause = isinstance(command, commands.Pause)
            if pause == state.pause_intended:
                return state
            return replace(state, pause_requested=pause)
        case commands.SetSystemPrompt():
            return replace(state, prompt_requested=command.system_prompt)
        case commands.Stop():
            return replace(state, stopping=True)
        case commands.Watch() | commands.SetPace() | commands.Step():
            watching = state.watching.requesting(command)
            return state if watching is state.watching else replace(state, watching=watching)
        case commands.TakeWheel() | commands.Act() | commands.LetGo():
            wheel = state.wheel.requesting(command)
            return state if wheel is state.wheel else replace(state, wheel=wheel)
        case commands.DrawStates():
            view = state.view.requesting(command)
            return state if view is state.view else replace(state, view=view)
        case commands.InspectTurn():
            inspection = state.inspection.requesting(command)
            return (
                state if inspection is state.inspection else replace(state, inspection=inspection)
            )
        case commands.WarmStart() | commands.CancelWarmStart():
            warm_start = state.warm_start.requesting(command)
            return (
                state if warm_start is state.warm_start else replace(state, warm_start=warm_start)
            )
        case _:
            pending = state.pending.requesting(command)
            return state if pending is state.pending else replace(state, pending=pending)


def with_history(state: RunState, other: RunState) -> RunState:
    """The state with the history of another one, which outlives a session; present and requests stay."""
    return replace(
        state,
        episodes=other.episodes,
        dropped=other.dropped,
        returns=other.returns,
        recent=other.recent,
        marks=other.marks,
        updates=other.updates,
        stats=other.stats,
        history=other.history,
        prompts=other.prompts,
        prompts_at_checkpoint=other.prompts_at_checkpoint,
        evaluations=other.evaluations,
        comparison=other.comparison,
        checkpoint=other.checkpoint,
        film=other.film,
        edit=other.edit,
    )


def restarted(state: RunState, *, new_run: bool = False) -> RunState:
    """The state of a run while its trainer is started again; or of a `new_run` in its place, which has no history."""
    before = with_history(state, initial_state(state.config)) if new_run else state
    return replace(
        before,
        phase="loading",
        detail="starting the trainer again",
        run=None,
        settings={},
        batch_turns=0,
        collapse="",
        unwritten="",
        watched=None,
        watching=Watching(),
        wheel=WheelState(),
        view=StateView(),
        failure="",
        finished=None,
        transcript=state.transcript.note("The trainer is started again."),
    )
