"""Which conversation of a rollout is told: one environment's as it is played, or one that is told again.

Every environment's episode is kept as the events that tell it, so that another one can be told from its beginning at
any moment; of the episodes that ended, the best and the worst of a batch are kept. Memory is bounded by the number of
environments and the longest episode.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from llamagym_tui.protocol.events import EpisodeFinished, EpisodeStarted, Event, TurnFinished, WatchChanged


@dataclass(slots=True)
class Extremes:
    """The best and the worst of some episodes, as they were told; of equal ones the first."""

    best: list[Event] = field(default_factory=list)
    worst: list[Event] = field(default_factory=list)
    _highest: float = float("-inf")
    _lowest: float = float("inf")

    def add(self, told: list[Event], episode_return: float) -> None:
        """Take in an episode that ended."""
        if episode_return > self._highest:
            self.best, self._highest = told, episode_return
        if episode_return < self._lowest:
            self.worst, self._lowest = told, episode_return


class Spectator:
    """Hears every environment and passes on what is watched."""

    def __init__(self, emit: Callable[[Event], None]) -> None:
        """A spectator of the first environment.

        Args:
            emit: takes the events of what is watched.
        """
        self.turns = 0
        """Turns that were told as they were played."""
        self._emit = emit
        self._told: list[list[Event]] = []
        self._now = WatchChanged(kind="env", env=0)
        self._holds = False
        """Whether the episode that was asked for has been told, and nothing follows it."""
        self._wants_failure = False
        self._last: Extremes | None = None
        self._present = Extremes()

    @property
    def env(self) -> int | None:
        """Environment that is told as it is played; None while an ended episode is."""
        return None if self._holds else self._now.env

    def forget(self, n_envs: int) -> None:
        """The episodes under way are dropped, and there are so many environments now."""
        self._told = [[] for _ in range(n_envs)]
        if self._now.env >= n_envs:
            self.watch(0)

    def forget_batches(self) -> None:
        """What comes now is of no batch, and the best and worst are those since."""
        self._last, self._present = None, Extremes()

    def next_batch(self) -> None:
        """A batch is complete: its best and worst episodes are the last batch's now."""
        if self._present.best:
            self._last, self._present = self._present, Extremes()

    def tell(self, env: int, event: Event) -> None:
        """Hear an event of an environment."""
        told = self._told[env]
        if isinstance(event, EpisodeStarted):
            told = self._told[env] = []
        told.append(event)
        if env == self.env:
            self._emit(event)
            self.turns += isinstance(event, TurnFinished)
        if isinstance(event, TurnFinished) and event.how == "failed" and self._wants_failure:
            self._begin(WatchChanged(kind="failure", env=env), [] if env == self.env else told)
        if isinstance(event, EpisodeFinished):
            self._present.add(told, event.episode_return)
            if env == self.env and self._now.kind == "failure":
                self._holds = True

    def watch(self, env: int) -> None:
        """Tell an environment from now on, its episode so far first; they are counted around in a circle."""
        env %= len(self._told)
        self._begin(WatchChanged(kind="env", env=env), self._told[env])

    def watch_next(self, kind: Literal["failure", "best", "worst"]) -> bool:
        """Tell the next failure, or the best or worst episode of the last batch, or since nothing is trained.

        Returns:
            False: no episode has ended yet.
        """
        if kind == "failure":
            self._wants_failure = True
            self._now = WatchChanged(kind=self._now.kind, env=self._now.env, awaits_failure=True)
            self._emit(self._now)
            return True
        extremes = self._last or self._present
        told = extremes.best if kind == "best" else extremes.worst
        if not told:
            self._emit(self._now)
            return False
        self._begin(WatchChanged(kind=kind, env=self._now.env), told)
        self._holds = True
        return True

    def _begin(self, now: WatchChanged, told: list[Event]) -> None:
        self._now, self._holds, self._wants_failure = now, False, False
        self._emit(now)
        for event in told:
            self._emit(event)
