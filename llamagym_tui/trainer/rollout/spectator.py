"""Chooses which environment's episode is streamed to the UI: one as it is played, or one that is replayed.

The events of every episode under way are kept, and of a batch's ended ones the best and the worst.
"""

from collections.abc import Callable
from operator import itemgetter
from typing import Any, Literal, NamedTuple

from llamagym_tui.game.observed import Info
from llamagym_tui.protocol.events import (
    EpisodeFinished,
    EpisodeStarted,
    Event,
    TurnFinished,
    WatchChanged,
)


class Undrawn(NamedTuple):
    """A state that can be drawn when somebody wants to see it."""

    env: int
    episode: int
    turn: int
    """Turns of the episode before."""
    observation: Any
    info: Info
    is_over: bool = False
    """Whether its episode has ended by itself, so that what the game hid may be seen."""


Item = Event | Undrawn
Ended = tuple[float, list[Item]]
"""Return and events of an episode."""


REPLIES = 1024
"""Replies during which a failure is waited for, unless a batch has another number."""


class Spectator:
    """Observes every environment and emits what is watched."""

    def __init__(
        self, emit: Callable[[Item], None], kept: Callable[[Undrawn], Item] = lambda state: state
    ) -> None:
        """A spectator of the first environment.

        Args:
            emit: receives events, and states to draw.
            kept: what is kept of the last state of an episode that may be shown again, while its environment is there.
        """
        self._kept = kept
        self.turns = 0
        """Turns that were emitted as they were played."""
        self._emit = emit
        self._items: list[list[Item]] = []
        """By environment: its episode so far or, until the next one begins, to its end."""
        self._states: list[Undrawn | None] = []
        self._now = WatchChanged(kind="env", env=0)
        self._waits_for = 0
        """Replies after which a failure is not waited for any longer."""
        self._waited_for = 0
        """Replies since it is."""
        self._is_held = False
        """Whether a requested episode was emitted to its end, and nothing follows it."""
        self._last: dict[str, Ended] = {}
        """The best and the worst episode of the last batch."""
        self._present: dict[str, Ended] = {}
        """Those of the batch under way; of equal ones the first."""

    @property
    def env(self) -> int | None:
        """Environment that is streamed as it is played; None while an ended episode is shown."""
        return None if self._is_held else self._now.env

    def events_of(self, env: int) -> list[Event]:
        """The events of an environment's episode, so far or, until the next one begins, to its end."""
        return [item for item in self._items[env] if isinstance(item, Event)]

    def reset(self, n_envs: int) -> None:
        """The episodes under way are dropped, and there are so many environments now."""
        self._items = [[] for _ in range(n_envs)]
        self._states = [None] * n_envs
        if self._now.env >= n_envs:
            self.watch(0)

    def forget_batches(self) -> None:
        """What comes now belongs to no batch; best and worst are those from now on."""
        self._last = {}
        self._present = {}

    def next_batch(self) -> None:
        """A batch is complete: its best and worst episodes are the last batch's now."""
        if self._present:
            self._last = self._present
            self._present = {}

    def observe_state(self, state: Undrawn) -> None:
        """Keep the state of an environment, before its observation is shown or after the last turn."""
        self._states[state.env] = state
        if state.env == self.env:
            self._emit(state)

    def emit_state(self) -> None:
        if self.env is not None and (state := self._states[self.env]) is not None:
            self._emit(state)

    def observe(self, env: int, event: Event) -> None:
        """Keep an event of an environment, and emit it if that is watched."""
        items = self._items[env]
        if isinstance(event, EpisodeStarted):
            items = []
            self._items[env] = items
        if isinstance(event, EpisodeFinished) and (last := self._states[env]) is not None:
            items.append(last)
        items.append(event)
        is_watched = env == self.env
        if is_watched:
            self._emit(event)
        if isinstance(event, TurnFinished):
            if is_watched:
                self.turns += 1
            if self._now.awaits_failure:
                self._waited_for += 1
                if event.names_none:
                    # What is watched was emitted already.
                    self._begin(WatchChanged(kind="failure", env=env), [] if is_watched else items)
                elif self._waited_for == self._waits_for:
                    self._now = WatchChanged(
                        kind="env", env=self._now.env, none_in=self._waited_for
                    )
                    self._emit(self._now)
        if isinstance(event, EpisodeFinished):
            self._present = self._extremes((event.episode_return, items))
            if env == self.env and self._now.kind == "failure":
                self._is_held = True

    def _extremes(self, ended: Ended) -> dict[str, Ended]:
        """The best and the worst episode of the batch so far, with one that has just ended."""
        found = {
            "best": max(self._present.get("best", ended), ended, key=itemgetter(0)),
            "worst": min(self._present.get("worst", ended), ended, key=itemgetter(0)),
        }
        if all(extreme is not ended for extreme in found.values()):
            return found
        episode_return, items = ended
        kept = [self._kept(item) if isinstance(item, Undrawn) else item for item in items]
        for kind, extreme in found.items():
            if extreme is ended:
                found[kind] = (episode_return, kept)
        return found

    def watch(self, env: int) -> None:
        """Stream an environment from now on, its episode so far first; environments are counted around in a circle."""
        env %= len(self._items)
        self._begin(WatchChanged(kind="env", env=env), self._items[env])
        if not any(isinstance(item, EpisodeFinished) for item in self._items[env][-1:]):
            self.emit_state()

    def watch_next(
        self, kind: Literal["failure", "best", "worst"], *, replies: int = REPLIES
    ) -> bool:
        """Stream the next failure, or the best or worst episode of the last batch; False: none has ended yet.

        A failure is waited for during so many `replies`, while the play is streamed as it goes.
        """
        if kind == "failure":
            self._waits_for = replies
            self._waited_for = 0
            waiting = WatchChanged(kind="env", env=self._now.env, awaits_failure=True)
            if self._is_held:
                self._begin(waiting, self._items[waiting.env])
            else:
                self._now = waiting
                self._emit(waiting)
            return True
        extremes = self._last or self._present
        if not extremes:
            self._emit(self._now)
            return False
        _, items = extremes[kind]
        self._begin(WatchChanged(kind=kind, env=self._now.env), items)
        self._is_held = True
        return True

    def _begin(self, now: WatchChanged, items: list[Item]) -> None:
        self._now = now
        self._is_held = False
        self._emit(now)
        for item in items:
            self._emit(item)
