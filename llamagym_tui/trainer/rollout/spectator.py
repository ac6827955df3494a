"""Which conversation of a rollout is told: one environment's as it is played, or one that is told again.

Every environment's episode is kept as the events that tell it, so that another one can be told from its beginning at
any moment; of the episodes that ended, the best and the worst of a batch are kept. Memory is bounded by the number of
environments and the longest episode. What a drawing is made of is kept for the last state of each episode alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from llamagym_tui.protocol.events import EpisodeFinished, EpisodeStarted, Event, TurnFinished, WatchChanged


class Sketch(NamedTuple):
    """A state that can be drawn when somebody wants to see it."""

    env: int
    episode: int
    turn: int
    """Turns of the episode before."""
    observation: Any


Told = Event | Sketch


@dataclass(slots=True)
class Extremes:
    """The best and the worst of some episodes, as they were told; of equal ones the first."""

    best: list[Told] = field(default_factory=list)
    worst: list[Told] = field(default_factory=list)
    _highest: float = float("-inf")
    _lowest: float = float("inf")

    def add(self, told: list[Told], episode_return: float) -> None:
        """Take in an episode that ended."""
        if episode_return > self._highest:
            self.best, self._highest = told, episode_return
        if episode_return < self._lowest:
            self.worst, self._lowest = told, episode_return


class Spectator:
    """Hears every environment and passes on what is watched."""

    def __init__(self, emit: Callable[[Told], None]) -> None:
        """A spectator of the first environment.

        Args:
            emit: takes what is watched: events, and states to draw.
        """
        self.turns = 0
        """Turns that were told as they were played."""
        self._emit = emit
        self._told: list[list[Told]] = []
        self._sketches: list[Sketch | None] = []
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

    def told(self, env: int) -> list[Event]:
        """The events that tell an environment's episode, so far or, until the next one begins, to its end."""
        return [told for told in self._told[env] if isinstance(told, Event)]

    def forget(self, n_envs: int) -> None:
        """The episodes under way are dropped, and there are so many environments now."""
        self._told = [[] for _ in range(n_envs)]
        self._sketches = [None] * n_envs
        if self._now.env >= n_envs:
            self.watch(0)

    def forget_batches(self) -> None:
        """What comes now is of no batch, and the best and worst are those since."""
        self._last, self._present = None, Extremes()

    def next_batch(self) -> None:
        """A batch is complete: its best and worst episodes are the last batch's now."""
        if self._present.best:
            self._last, self._present = self._present, Extremes()

    def sketch(self, sketch: Sketch) -> None:
        """See the state of an environment: before it is told, or after the last turn."""
        self._sketches[sketch.env] = sketch
        if sketch.env == self.env:
            self._emit(sketch)

    def sketch_again(self) -> None:
        """Pass on the present state of the environment that is watched."""
        if self.env is not None and (sketch := self._sketches[self.env]) is not None:
            self._emit(sketch)

    def tell(self, env: int, event: Event) -> None:
        """Hear an event of an environment."""
        told = self._told[env]
        if isinstance(event, EpisodeStarted):
            told = self._told[env] = []
        if isinstance(event, EpisodeFinished) and (last := self._sketches[env]) is not None:
            told.append(last)
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
        if not any(isinstance(told, EpisodeFinished) for told in self._told[env][-1:]):
            self.sketch_again()

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

    def _begin(self, now: WatchChanged, told: list[Told]) -> None:
        self._now, self._holds, self._wants_failure = now, False, False
        self._emit(now)
        for event in told:
            self._emit(event)
