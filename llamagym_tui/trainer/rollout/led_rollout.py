"""The rollout of one of several ranks, each with its share of the environments and of the batch; rank 0's leads.

All make a step together, but for ranks whose share of the batch is full, and report what ended. What they must agree
on goes with each order, and rank 0's weights after whatever but an update has changed them. Only rank 0's environments
can be watched; of the others, episodes and steps count.
"""

from typing import Any, NamedTuple

import msgspec

from llamagym_tui.engine.policy.trajectory import Trajectory
from llamagym_tui.protocol import events
from llamagym_tui.trainer.rollout.episode_counts import EndedEpisode
from llamagym_tui.trainer.rollout.rollout import Rollout
from llamagym_tui.trainer.rollout.saved_rollout import SavedRollout

SLOW = 0.5
"""Part of an update that the other ranks wait for one that is called slow."""
OF_POLICY = ("generation", "history")
SETTINGS = ("batch_turns", "cuts_episodes", "mode", "system_prompt", "prompt_version", *OF_POLICY)


class Plan(NamedTuple):
    """What all ranks go by."""

    is_anew: bool
    """Whether all take the weights of rank 0, and drop what is under way."""
    n_envs: int
    started: int
    """Number of rank 0's next episode."""
    room: int | None
    """Episodes that may begin, on all ranks together. None: any number."""
    settings: dict[str, Any]


class Played(NamedTuple):
    """What a rank has played in a step."""

    ended: list[EndedEpisode]
    env_steps: int
    dropped: int
    live: int
    """Episodes under way after it."""
    is_full: bool
    """Whether its share of the batch is."""


class LedRollout(Rollout):
    def __init__(self, *arguments: Any, episode_limit: int | None = None, **more: Any) -> None:
        """As of `Rollout`; the environments and the limit are of all ranks."""
        self._all_episodes, self._live_elsewhere = episode_limit, 0
        self._is_batch_full, self._is_anew = False, True
        self._slow: int | None = None
        super().__init__(*arguments, **more)

    # On every rank.

    def resize(self, n_envs: int) -> None:
        super().resize(self.ranks.part(n_envs))
        self.n_envs = n_envs

    def follow(self, plan: Plan) -> None:
        """Go by a plan from now on."""
        if plan.is_anew:
            self.ranks.share()
            self._started = max(self._started, plan.started + self.ranks.rank)
        if plan.n_envs != self.n_envs:
            self.resize(plan.n_envs)
        elif plan.is_anew and self.ranks.rank:
            self.restart()
        for name, value in plan.settings.items():
            part = self.policy if name in OF_POLICY else self
            if getattr(part, name) != value:  # to set a mode drops episodes
                setattr(part, name, value)
        self.episode_limit = None if plan.room is None else self.episodes + self.live + self.ranks.part(plan.room)

    def play(self) -> Played:
        """One step, unless the share of the batch is full."""
        env_steps, dropped = self.env_steps, self.failures.dropped
        ended = [] if self._mode == "train" and super().batch_ready else super().step()
        made = self.env_steps - env_steps, self.failures.dropped - dropped
        return Played(ended, *made, self.live, super().batch_ready)

    # On rank 0; where an order is under way, on every rank, of this one alone.

    @property
    def batch_ready(self) -> bool:
        return self._is_batch_full

    def restart(self) -> None:
        super().restart()
        self._is_anew, self._live_elsewhere = True, 0

    def step(self) -> list[EndedEpisode]:
        self._warn_of_slow_rank()
        found = self._led("play")
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
        if not self.ranks.under_way:
            self._order("update")
        return super().take_batch()

    def state(self) -> SavedRollout:
        if self.ranks.under_way:
            return super().state()
        own, *others = self._led("state")
        return msgspec.structs.replace(own, others=others)

    def restore(self, state: Any) -> int:
        if self.ranks.under_way:
            return super().restore(state)
        saved = msgspec.convert(state, SavedRollout)  # or it would raise after the others have begun
        lost = sum(self._led("restore", saved))
        self._live_elsewhere = sum(len(each.episodes) for each in saved.others)
        return lost

    def _order(self, name: str, *arguments: Any) -> None:
        """Have the others do something by the present plan."""
        room = self._all_episodes
        if room is not None:
            room = max(0, room - self.episodes - self.live - self._live_elsewhere)
        settings = {each: getattr(self.policy if each in OF_POLICY else self, each) for each in SETTINGS}
        plan = Plan(self._is_anew, self.n_envs, self._started, room, settings)
        self._is_anew = False
        self.ranks.order(name, plan, arguments)
        self.follow(plan)

    def _led(self, name: str, *arguments: Any) -> list[Any]:
        """What has come of a method on each rank."""
        self._order(name, *arguments)
        own = None
        try:
            own = getattr(self, name)(*arguments)
        finally:
            found = self.ranks.report(own)  # the others report in any case
        return found

    def _warn_of_slow_rank(self) -> None:
        waits = self.ranks.waits
        slow = min(range(len(waits)), key=waits.__getitem__, default=None)
        least = min((each for rank, each in enumerate(waits) if rank != slow), default=0.0)
        if slow is not None and least > SLOW and slow != self._slow:
            self._slow = slow
            sentence = f"Rank {slow} is slow: the others waited for it in {100 * least:.0f} % of the last update."
            self._emit(events.WarningRaised(message=sentence))
