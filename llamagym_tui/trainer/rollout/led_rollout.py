"""The rollout of one of several ranks, each with its share of the environments and of the batch; rank 0's leads.

All make a step together, but for ranks whose share of the batch is full, and gather what ended. What they must agree
on comes from rank 0 with each step, and its weights after whatever but an update has changed them. Only rank 0's
environments can be watched, and only its counts are of all ranks.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from llamagym_tui.config import GenerationConfig, Mode
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.trajectory import Trajectory
from llamagym_tui.engine.ranks import Ranks
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.protocol.events import Event, WarningRaised
from llamagym_tui.trainer.rollout.env_slot import AnyEnv
from llamagym_tui.trainer.rollout.episode_counts import EpisodeCounts
from llamagym_tui.trainer.rollout.opponents import Opponent
from llamagym_tui.trainer.rollout.rollout import Rollout
from llamagym_tui.trainer.rollout.saved_rollout import SavedRollout

SEEDS_APART = 1_000_003
"""Distance between the seeds by which ranks sample."""
SLOW = 0.5
"""Part of an update, or of a turn, that the other ranks wait for one that is called slow."""


class Plan(NamedTuple):
    """What rank 0 has all ranks go by."""

    is_anew: bool
    """Whether a rank takes the weights of rank 0 and drops what is under way."""
    started: int
    """The number of the next episode of rank 0."""
    room: int | None
    """Further episodes that all ranks together may begin. None: no limit."""
    n_envs: int
    batch_turns: int
    cuts_episodes: bool
    group_size: int
    mode: Mode
    system_prompt: str
    prompt_version: int
    generation: GenerationConfig
    history: int | None


class Played(NamedTuple):
    """What a rank has played in a step."""

    ended: list[EpisodeCounts]
    env_steps: int
    dropped: int
    live: int
    """Episodes under way after it."""
    is_full: bool
    """Whether its share of the batch is."""
    seconds: float


class LedRollout(Rollout):
    def __init__(
        self,
        agent: AgentBase,
        policy: Policy,
        *,
        n_envs: int,
        max_turns: int | None,
        batch_turns: int,
        cuts_episodes: bool,
        group_size: int,
        seed: int,
        emit: Callable[[Event], None],
        episode_limit: int | None,
        max_failures: int,
        make_env: Callable[[], AnyEnv],
        ranks: Ranks,
        opponent: Opponent | None = None,
    ) -> None:
        """Make this rank's environments; the arguments are as of `Rollout`, and those of all ranks."""
        self._limit_of_all = episode_limit
        self._live_elsewhere = 0
        """Episodes that are under way on other ranks."""
        self._is_batch_full = False
        self._is_anew = True
        """Whether the next plan is; see `Plan`."""
        self._slow: int | None = None
        """The rank that was called slow last."""
        self._seconds = defaultdict[int, float](float)
        """By rank: how long the steps of this batch took in which every rank played a turn."""
        self._turns = defaultdict[int, int](int)
        """By rank: the turns of those steps."""
        super().__init__(
            agent,
            policy,
            n_envs=n_envs,
            max_turns=max_turns,
            batch_turns=batch_turns,
            cuts_episodes=cuts_episodes,
            group_size=group_size,
            seed=seed,
            emit=emit,
            max_failures=max_failures,
            make_env=make_env,
            ranks=ranks,
            opponent=opponent,
        )

    def resize(self, n_envs: int) -> None:
        super().resize(self.ranks.part(n_envs))
        self.n_envs = n_envs

    def follow(self, plan: Plan) -> None:
        """Go by what rank 0 goes by."""
        rank = self.ranks.rank
        if plan.is_anew:
            self.ranks.share()
        if plan.n_envs != self.n_envs:
            self.resize(plan.n_envs)
        if plan.is_anew and rank:
            self.restart()
            self._started = max(self._started, plan.started + rank)
            self.policy.generator.manual_seed(self.shared.seed + plan.started + rank * SEEDS_APART)
        self.batch_turns = plan.batch_turns
        self.cuts_episodes = plan.cuts_episodes
        self.group_size = plan.group_size
        if plan.mode != self.mode:  # to set a mode drops episodes
            self.mode = plan.mode
        self.system_prompt = plan.system_prompt
        self.prompt_version = plan.prompt_version
        self.policy.generation = plan.generation
        self.policy.history = plan.history
        if plan.room is None:
            self.episode_limit = None
        else:
            self.episode_limit = self.episodes + self.live + self.ranks.part(plan.room)

    def play(self) -> Played:
        """One step of this rank, unless its share of the batch is full."""
        env_steps = self.env_steps
        dropped = self.failures.dropped
        began_s = time.perf_counter()
        ended = []
        if not (self._mode == "train" and super().batch_ready):
            ended = super().step()
        return Played(
            ended=ended,
            env_steps=self.env_steps - env_steps,
            dropped=self.failures.dropped - dropped,
            live=self.live,
            is_full=super().batch_ready,
            seconds=time.perf_counter() - began_s,
        )

    # Of rank 0: what is of all.

    @property
    def batch_ready(self) -> bool:
        return self._is_batch_full

    def restart(self) -> None:
        super().restart()
        self._is_anew = True
        self._live_elsewhere = 0

    def step(self) -> list[EpisodeCounts]:
        self._warn_of_slow_rank(self.ranks.waits, "the last update")
        self._lead(updates=False)
        found = self.ranks.gather(self.play())
        if all(played.env_steps for played in found):
            for rank, played in enumerate(found):
                self._seconds[rank] += played.seconds
                self._turns[rank] += played.env_steps
        others = found[1:]
        self.episodes += sum(len(played.ended) for played in others)
        self.env_steps += sum(played.env_steps for played in others)
        self.failures.dropped += sum(played.dropped for played in others)
        self._live_elsewhere = sum(played.live for played in others)
        # A rank that has no more episodes to play keeps nobody from training on theirs.
        ready = all(played.is_full or not (played.live or played.ended) for played in found)
        self._is_batch_full = ready and any(played.is_full for played in found)
        return [episode for played in found for episode in played.ended]

    def take_batch(self) -> list[Trajectory]:
        """This rank's part; the update gathers those of all."""
        if self.ranks.rank == 0:
            turn_s = [self._seconds[rank] / turns for rank, turns in self._turns.items()]
            self._warn_of_slow_rank([1 - each / max(turn_s) for each in turn_s], "each turn")
            self._seconds.clear()
            self._turns.clear()
            self._lead(updates=True)
        return super().take_batch()

    def restore(self, state: Any) -> int:
        """Go on with the episodes after those of a state; the batch that was under way begins anew."""
        self._started = msgspec.convert(state, SavedRollout).started
        self._emit(
            WarningRaised(message="The batch that was under way on several ranks begins anew.")
        )
        return 0

    def _lead(self, *, updates: bool) -> None:
        """Have all ranks go by what holds now, then update or play a step."""
        room = None
        if self._limit_of_all is not None:
            begun = self.episodes + self.live + self._live_elsewhere
            room = max(0, self._limit_of_all - begun)
        plan = Plan(
            is_anew=self._is_anew,
            started=self._started,
            room=room,
            n_envs=self.n_envs,
            batch_turns=self.batch_turns,
            cuts_episodes=self.cuts_episodes,
            group_size=self.group_size,
            mode=self.mode,
            system_prompt=self.system_prompt,
            prompt_version=self.prompt_version,
            generation=self.policy.generation,
            history=self.policy.history,
        )
        self._is_anew = False
        self.ranks.first((updates, plan), patient=True)
        self.follow(plan)

    def _warn_of_slow_rank(self, parts: Sequence[float], work: str) -> None:
        """Warn of the rank for which all others wait.

        Args:
            parts: by rank, that part of some work which it waits for others.
        """
        if not parts:
            return
        waits = sorted((waited, rank) for rank, waited in enumerate(parts))
        _, slowest = waits[0]
        least_of_others, _ = waits[1]
        if least_of_others > SLOW and slowest != self._slow:
            self._slow = slowest
            part = f"the others waited for it in {100 * least_of_others:.0f} % of {work}"
            self._emit(WarningRaised(message=f"Rank {self._slow} is slow: {part}."))
