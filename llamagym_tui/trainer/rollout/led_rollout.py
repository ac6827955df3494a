"""The rollout of one of several ranks, each with its share of the environments and of the batch; rank 0's leads.

All make a step together, but for ranks whose share of the batch is full, and gather what ended. What they must agree
on comes from rank 0 with each step, and its weights after whatever but an update has changed them. Only rank 0's
environments can be watched, and only its counts are of all ranks.
"""

import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from llamagym_tui.engine.policy.trajectory import Trajectory
from llamagym_tui.protocol.events import WarningRaised
from llamagym_tui.trainer.rollout.episode_counts import EndedEpisode
from llamagym_tui.trainer.rollout.rollout import Rollout
from llamagym_tui.trainer.rollout.saved_rollout import SavedRollout

SEEDS_APART = 1_000_003
"""Distance between the seeds by which ranks sample."""
SLOW = 0.5
"""Part of an update, or of a turn, that the other ranks wait for one that is called slow."""
OF_POLICY = ("generation", "history")
SETTINGS = ("batch_turns", "cuts_episodes", "mode", "system_prompt", "prompt_version", *OF_POLICY)


class Played(NamedTuple):
    """What a rank has played in a step."""

    ended: list[EndedEpisode]
    env_steps: int
    dropped: int
    live: int
    """Episodes under way after it."""
    is_full: bool
    """Whether its share of the batch is."""
    seconds: float


class LedRollout(Rollout):
    def __init__(self, *arguments: Any, episode_limit: int | None = None, **more: Any) -> None:
        """As of `Rollout`; the environments and the limit are of all ranks."""
        self._limit_of_all, self._live_elsewhere = episode_limit, 0
        self._is_batch_full, self._is_anew = False, True
        self._slow: int | None = None
        self._seconds, self._turns = defaultdict[int, float](float), defaultdict[int, int](int)
        """By rank: of the steps of this batch in which every rank played a turn."""
        super().__init__(*arguments, **more)

    def resize(self, n_envs: int) -> None:
        super().resize(self.ranks.part(n_envs))
        self.n_envs = n_envs

    def follow(
        self,
        *,
        is_anew: bool,
        n_envs: int,
        started: int,
        room: int | None,
        settings: dict[str, Any],
    ) -> None:
        """Go by what rank 0 goes by; where it is `is_anew`, take its weights and drop what is under way.

        `started` is the number of its next episode; `room` have all ranks together for further ones. None: no limit.
        """
        rank = self.ranks.rank
        if is_anew:
            self.ranks.share()
        if n_envs != self.n_envs:
            self.resize(n_envs)
        if is_anew and rank:
            self.restart()
            self._started = max(self._started, started + rank)
            self.policy.generator.manual_seed(self.shared.seed + started + rank * SEEDS_APART)
        for name, value in settings.items():
            part = self.policy if name in OF_POLICY else self
            if getattr(part, name) != value:  # to set a mode drops episodes
                setattr(part, name, value)
        self.episode_limit = (
            None if room is None else self.episodes + self.live + self.ranks.part(room)
        )

    def play(self) -> Played:
        """One step of this rank, unless its share of the batch is full."""
        env_steps, dropped, began_s = self.env_steps, self.failures.dropped, time.perf_counter()
        ended = [] if self._mode == "train" and super().batch_ready else super().step()
        made = self.env_steps - env_steps, self.failures.dropped - dropped
        return Played(ended, *made, self.live, super().batch_ready, time.perf_counter() - began_s)

    # Of rank 0: what is of all.

    @property
    def batch_ready(self) -> bool:
        return self._is_batch_full

    def restart(self) -> None:
        super().restart()
        self._is_anew, self._live_elsewhere = True, 0

    def step(self) -> list[EndedEpisode]:
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
        limit = self._limit_of_all
        room = (
            None
            if limit is None
            else max(0, limit - self.episodes - self.live - self._live_elsewhere)
        )
        plan: dict[str, Any] = {
            "is_anew": self._is_anew,
            "n_envs": self.n_envs,
            "started": self._started,
            "room": room,
        }
        plan["settings"] = {
            each: getattr(self.policy if each in OF_POLICY else self, each) for each in SETTINGS
        }
        self._is_anew = False
        self.ranks.first((updates, plan), patient=True)
        self.follow(**plan)

    def _warn_of_slow_rank(self, parts: Sequence[float], work: str) -> None:
        """`parts`: by rank, that part of some work which it waits for others."""
        waits = sorted((waited, rank) for rank, waited in enumerate(parts))
        if waits and waits[1][0] > SLOW and waits[0][1] != self._slow:
            self._slow = waits[0][1]
            part = f"the others waited for it in {100 * waits[1][0]:.0f} % of {work}"
            self._emit(WarningRaised(message=f"Rank {self._slow} is slow: {part}."))
