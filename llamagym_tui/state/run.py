"""The run as the screens show it: one frozen state in bounded memory, made from events by a pure reducer.

A command enters it by `requested`, an event by `reduce`.
"""

from functools import cached_property
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from llamagym_tui.protocol import commands, events
from llamagym_tui.protocol.commands import AnyCommand
from llamagym_tui.settings import Mode, RunConfig, Value
from llamagym_tui.state.pending import Pending
from llamagym_tui.state.prompts import PromptEdit, Versions
from llamagym_tui.state.returns import MeanReturn, ReturnSeries, mean_return
from llamagym_tui.state.transcript import StateView, Transcript

MAX_SAMPLES = 256
"""Most updates of which the figures are kept; an even number, so that the last one stays when half of them go."""
TURN_S = (0.0, 0.5, 1.5, 4.0)
"""Seconds between two turns at each pace: as they are played, quick, reading pace, slow."""


class Mark(NamedTuple):
    """An episode at which a person or a roll back changed the run, shown as a line in the chart."""

    episode: int
    label: str
    update: int
    """The number of updates by then."""


class Inspection(NamedTuple):
    """What is known of replies that were looked at token by token."""

    found: events.TurnInspected | None = None
    """The last answer with tokens."""
    refused: events.TurnInspected | None = None
    """The last answer, if it has only the reason why there are no tokens."""

    def of(self, episode: int, turn: int) -> events.TurnInspected | None:
        """The tokens of a reply, if it was the last one inspected."""
        found = self.found
        is_its = found is not None and (found.episode, found.turn) == (episode, turn)
        return found if is_its else None

    def why_not(self, episode: int, turn: int) -> str:
        """Why nothing more is known of a reply; empty if no reason was given."""
        refused = self.refused
        is_its = refused is not None and (refused.episode, refused.turn) == (episode, turn)
        return refused.why_not if refused is not None and is_its else ""


class WarmStartState(NamedTuple):
    """The training on demonstrations that is under way, or the last one."""

    losses: tuple[float, ...] = ()
    """Its last losses."""
    result: events.WarmStartFinished | None = None
    evaluated: events.WarmStartEvaluated | None = None
    refused: str = ""
    """Why nothing was trained."""


class Sample(NamedTuple):
    """An update and its figures."""

    episodes: int
    """The number of episodes since the run began."""
    update: int
    stats: events.UpdateStats

    @property
    def place(self) -> tuple[int, int]:
        """Where the update stands in the run; this only grows."""
        return self.episodes, self.update


class UpdateSeries(NamedTuple):
    """The figures of a run's updates; of a long run only every second, fourth, … one, and always the last one."""

    samples: tuple[Sample, ...] = ()
    """The kept updates, in order."""
    every: int = 1
    """1: every update is kept; 2: every second one, and so on. The last one is kept in any case."""
    seen: int = 0
    """The number of updates that were added."""

    def add(self, event: events.UpdateFinished) -> "UpdateSeries":
        """The series with another update at its end; updates that a resumed run makes again are replaced."""
        new = Sample(event.episodes, event.update, event.stats)
        before = self.samples
        if before and before[-1].place >= new.place:  # a resumed run
            before = tuple(sample for sample in before if sample.place < new.place)
        elif before and (self.seen - 1) % self.every:  # the last one was only kept as the last one
            before = before[:-1]
        samples = (*before, new)
        every = self.every
        if len(samples) > MAX_SAMPLES:
            samples = samples[::2]
            every *= 2
        return UpdateSeries(samples, every, self.seen + 1)

    def until(self, episode: int) -> "UpdateSeries":
        """The series without the updates after an episode."""
        kept = tuple(sample for sample in self.samples if sample.episodes <= episode)
        return self._replace(samples=kept)

    def values(self, field: str) -> list[tuple[int, float]]:
        """A figure of each update, with the number of episodes by then."""
        return [(sample.episodes, float(getattr(sample.stats, field))) for sample in self.samples]


class RunState(Struct, frozen=True, kw_only=True, dict=True):
    """Everything that is known of a run."""

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
    run: events.RunStarted | None = None
    """The event with which the trainer began to play; None until the model is loaded."""

    mode: Mode = "train"
    system_prompt: str | None = None
    """The system prompt that the trainer has, once it is known."""
    prompt_version: int = 0
    """Number of that prompt among the versions of the run."""
    prompts: Versions = ()
    """All system prompts of the run, with what was played under each."""
    prompts_at_checkpoint: Versions = ()
    """The same when the last checkpoint was written."""
    edit: PromptEdit | None = None
    """The last edit of the prompt, if there was one."""
    pending: Pending = field(default_factory=Pending)
    """Requests that are not confirmed."""
    env: int = 0
    """The watched environment, counted from 0."""
    turn_s: float = 0.0
    """Seconds between two turns that are shown; 0: all turns of the watched environment as they are played."""
    wheel: events.WheelTaken | None = None
    """A person's choices in the agent's place; None while the agent acts."""
    awaited: events.ActionAwaited | None = None
    """The turn that waits for the person; None while other environments play or the model learns."""
    view: StateView = field(default_factory=StateView)
    inspection: Inspection = Inspection()
    warm_start: WarmStartState = WarmStartState()
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
    marks: tuple[Mark, ...] = ()
    updates: int = 0
    """The number of updates of the policy."""
    stats: events.UpdateStats | None = None
    """Figures of the last update."""
    history: UpdateSeries = UpdateSeries()
    """Figures of the updates so far."""
    depth: events.DepthMeasured | None = None
    """What the first layers of the model foretell; None: nothing was compared, or not yet."""
    batch_turns: int = 0
    """Turns of the training episodes that have ended since the last update."""
    map_layout: events.PolicyMapLaidOut | None = None
    """The agent's policy map, or the reason why it cannot be used; None if it has none, or until it is known."""
    mapped: events.PolicyMapped | None = None
    """The newest policy on its map."""
    film: tuple[events.PolicyMapped, ...] = ()
    """Some of the run's maps in the order of their updates, the first one and the two newest among them; at most
    `reduce.MAX_FRAMES`."""
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
    def stopping(self) -> bool:
        """True once the trainer was asked to write its checkpoint and end."""
        return self.pending.of(commands.Stop) is not None

    @property
    def mode_intended(self) -> Mode:
        """The mode that was requested last, confirmed or not."""
        asked = self.pending.of(commands.SetMode)
        return self.mode if asked is None else asked.mode

    @property
    def pause_intended(self) -> bool:
        """True if a pause was requested last, confirmed or not."""
        asked = self.pending.of(commands.Pause, commands.Resume)
        return self.phase == "paused" if asked is None else isinstance(asked, commands.Pause)

    @property
    def prompt_requested(self) -> str | None:
        """The requested system prompt that the trainer has not taken yet."""
        asked = self.pending.of(commands.SetSystemPrompt)
        return None if asked is None else asked.system_prompt

    @property
    def env_intended(self) -> int:
        """The environment that was requested last, confirmed or not."""
        asked = self.pending.of(commands.Watch)
        return self.env if asked is None else asked.env

    @property
    def turn_s_intended(self) -> float:
        """The speed that was requested last, confirmed or not."""
        asked = self.pending.of(commands.SetPace)
        return self.turn_s if asked is None else asked.turn_s

    @property
    def slower(self) -> float:
        """The next slower speed, or the present one if it is the slowest."""
        slower = [turn_s for turn_s in TURN_S if turn_s > self.turn_s_intended]
        return min(slower, default=self.turn_s_intended)

    @property
    def faster(self) -> float:
        """The next faster speed, or the present one if it is the fastest."""
        faster = [turn_s for turn_s in TURN_S if turn_s < self.turn_s_intended]
        return max(faster, default=self.turn_s_intended)

    @property
    def wheel_wanted(self) -> bool:
        """True if the person has the wheel or has asked for it."""
        return self.wheel is not None or self.pending.of(commands.TakeWheel) is not None

    @property
    def is_persons_turn(self) -> bool:
        """True if the person can act now."""
        asked = self.pending.of(commands.TakeWheel, commands.LetGo, commands.Act)
        return self.wheel is not None and self.awaited is not None and asked is None

    @property
    def is_warm_starting(self) -> bool:
        """True from the request of a warm start to its end, with its evaluations."""
        return self.pending.of(commands.WarmStart) is not None or self.phase == "warm_starting"

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
        if self.progress is not None and self.progress.doing == "playing":
            played = max(played, self.progress.done)
        return min(played, wanted), wanted

    @property
    def map_is_present(self) -> bool:
        """True if the newest map is of the policy after the last update."""
        return self.mapped is not None and self.mapped.update == self.updates

    @property
    def exact_return(self) -> float | None:
        """Exact mean return of the newest map's policy; None: there is no map, or it cannot be computed."""
        return None if self.mapped is None else self.mapped.value

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
    """The state after a command was requested; the same object if it need not be sent, or not again."""
    pending, awaited = state.pending, state.awaited
    match command:
        case commands.SetMode(mode=mode):
            is_new = mode != state.mode_intended
        case commands.Pause() | commands.Resume():
            is_new = isinstance(command, commands.Pause) != state.pause_intended
        case commands.SetPace(turn_s=turn_s):
            is_new = turn_s != state.turn_s_intended
        case commands.TakeWheel():
            is_new = not state.wheel_wanted
        case commands.LetGo():
            is_new = state.wheel_wanted and pending.of(commands.LetGo) is None
        case commands.Act(episode=episode, turn=turn):
            # When a key is pressed twice, the next turn may be waiting already.
            is_awaited = awaited is not None and (awaited.episode, awaited.turn) == (episode, turn)
            is_new = is_awaited and state.is_persons_turn
        case commands.Evaluate() | commands.ComparePrompts():
            is_new = pending.of(commands.Evaluate, commands.ComparePrompts) is None
        case commands.Step():
            is_new = pending.of(commands.Step) is None
        case commands.WarmStart():
            is_new = not state.is_warm_starting
        case _:
            is_new = command not in pending.commands
    if not is_new:
        return state
    if isinstance(command, commands.WarmStart):
        state = replace(state, warm_start=WarmStartState())
    return replace(state, pending=pending.requesting(command))


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
        depth=other.depth,
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
        env=0,
        turn_s=0.0,
        view=StateView(),
        failure="",
        finished=None,
        transcript=state.transcript.note("The trainer is started again."),
    )
