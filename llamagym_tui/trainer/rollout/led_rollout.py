"""The rollout of one of several ranks, each with its share of the environments and of the batch; rank 0 leads.

Rank 0 tells the others how a batch is played, plays its own share, and gathers what they have played. It tells them its
weights after anything but an update has changed them. Only its own environments can be watched.
"""

from typing import Any, NamedTuple

from llamagym_tui.engine.policy.trajectory import Trajectory
from llamagym_tui.settings import GenerationConfig
from llamagym_tui.trainer.rollout.episode_counts import EpisodeCounts
from llamagym_tui.trainer.rollout.rollout import Rollout

SEEDS_APART = 1_000_003
"""Distance between the seeds by which ranks sample."""


class Plan(NamedTuple):
    """The plan of the next batch, for all ranks."""

    is_anew: bool
    """Each rank takes the weights of rank 0 and drops what is under way."""
    started: int
    """The number of the next episode of rank 0."""
    room: int | None
    """Further episodes that all ranks together may begin. None: no limit."""
    n_envs: int
    batch_turns: int
    cuts_episodes: bool
    group_size: int
    system_prompt: str
    prompt_version: int
    generation: GenerationConfig
    history: int | None


class Share(NamedTuple):
    """A rank's part of a batch."""

    ended: list[EpisodeCounts]
    env_steps: int
    dropped: int
    live: int
    """Episodes under way after it."""
    is_full: bool


class LedRollout(Rollout):
    def __init__(self, *args: Any, episode_limit: int | None, **settings: Any) -> None:
        """Make this rank's environments; the arguments are those of `Rollout`, for all ranks together."""
        self._limit_of_all = episode_limit
        self._live_elsewhere = 0
        """Episodes that are under way on other ranks."""
        self._others_play = False
        """The other ranks play their shares of a batch, which were not gathered."""
        self._is_batch_full = False
        self._is_anew = True
        """The next plan is; see `Plan`."""
        super().__init__(*args, **settings)

    def resize(self, n_envs: int) -> None:
        super().resize(self.ranks.part(n_envs))
        self.n_envs = n_envs

    def follow(self, plan: Plan) -> None:
        """Play by a plan from now on."""
        rank = self.ranks.rank
        if plan.is_anew:
            self.ranks.share()
        if plan.n_envs != self.n_envs:
            self.resize(plan.n_envs)
        if plan.is_anew and rank:
            self.restart()
            self.started = max(self.started, plan.started + rank)
            self.policy.generator.manual_seed(self.seed + plan.started + rank * SEEDS_APART)
        self.batch_turns = plan.batch_turns
        self.cuts_episodes = plan.cuts_episodes
        self.group_size = plan.group_size
        self.system_prompt = plan.system_prompt
        self.prompt_version = plan.prompt_version
        self.policy.generation = plan.generation
        self.policy.history = plan.history
        self.episode_limit = None
        if plan.room is not None:
            self.episode_limit = self.episodes + self.live + self.ranks.part(plan.room)

    def play_share(self) -> Share:
        """Play this rank's share of a batch."""
        env_steps = self.env_steps
        dropped = self.failures.dropped
        ended: list[EpisodeCounts] = []
        while not super().batch_ready:
            ended += super().step()
            if not (self.live or self._may_begin):
                break
        return Share(
            ended=ended,
            env_steps=self.env_steps - env_steps,
            dropped=self.failures.dropped - dropped,
            live=self.live,
            is_full=super().batch_ready,
        )

    @property
    def _may_begin(self) -> bool:
        return self.episode_limit is None or self.episodes < self.episode_limit

    # Of rank 0: what is of all.

    @property
    def batch_ready(self) -> bool:
        return self._is_batch_full

    def restart(self) -> None:
        super().restart()
        self._is_anew = True
        self._is_batch_full = False
        self._live_elsewhere = 0

    def step(self) -> list[EpisodeCounts]:
        if self.mode == "inference":
            return super().step()
        ended: list[EpisodeCounts] = []
        if self._others_play and self._is_anew:
            ended += self._gather()  # they drop what was played by other weights
            self._is_batch_full = False
        if not self._others_play:
            self._lead()
        if not super().batch_ready:
            ended += super().step()
        if super().batch_ready or not (self.live or self._may_begin):
            ended += self._gather()
        return ended

    def take_batch(self) -> list[Trajectory]:
        """This rank's part; the update gathers those of all."""
        if self.ranks.rank == 0:
            self.ranks.first(("update", None), patient=True)
            self._is_batch_full = False
        return super().take_batch()

    def _lead(self) -> None:
        """Let all ranks play a batch as it is to be played now."""
        room = None
        if self._limit_of_all is not None:
            begun = self.episodes + self.live + self._live_elsewhere
            room = max(0, self._limit_of_all - begun)
        plan = Plan(
            is_anew=self._is_anew,
            started=self.started,
            room=room,
            n_envs=self.n_envs,
            batch_turns=self.batch_turns,
            cuts_episodes=self.cuts_episodes,
            group_size=self.group_size,
            system_prompt=self.system_prompt,
            prompt_version=self.prompt_version,
            generation=self.policy.generation,
            history=self.policy.history,
        )
        self._is_anew = False
        self.ranks.first(("play", plan), patient=True)
        self._others_play = True
        self.follow(plan)

    def _gather(self) -> list[EpisodeCounts]:
        """Gather what the other ranks have played; the episodes that ended there."""
        self.ranks.first(("gather", None), patient=True)
        self._others_play = False
        ended = []
        self._live_elsewhere = 0
        # A rank that has no more episodes to play keeps nobody from training on theirs.
        self._is_batch_full = super().batch_ready
        for share in self.ranks.gather(Share([], 0, 0, 0, False)):
            self._is_batch_full |= share.is_full
            ended += share.ended
            self.episodes += len(share.ended)
            self.env_steps += share.env_steps
            self.failures.dropped += share.dropped
            self._live_elsewhere += share.live
        return ended
