"""Streams the watched environment's episode to the UI.

The events of every episode under way are kept, so that another environment can be watched from its episode's beginning.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from llamagym_tui.game.observed import Info
from llamagym_tui.protocol.events import (
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
    """True if its episode has ended by itself, so that what the game hid may be seen."""


Item = Event | Undrawn


class Spectator:
    """Observes every environment and emits the events of the watched one, at first the first."""

    def __init__(self, emit: Callable[[Item], None]) -> None:
        """`emit` receives events, and states to draw."""
        self.env = 0
        """The watched environment."""
        self.turns = 0
        """Turns that were emitted as they were played."""
        self._emit = emit
        self._events: list[list[Event]] = []
        """By environment: its episode so far or, until the next one begins, to its end."""
        self._states: list[Undrawn | None] = []

    def events_of(self, env: int) -> list[Event]:
        """The events of an environment's episode, so far or, until the next one begins, to its end."""
        return list(self._events[env])

    def reset(self, n_envs: int) -> None:
        """Drop the episodes under way; there are `n_envs` environments now."""
        self._events = [[] for _ in range(n_envs)]
        self._states = [None] * n_envs
        if self.env >= n_envs:
            self.watch(0)

    def observe_state(self, state: Undrawn) -> None:
        """Keep the state of an environment, before its observation is shown or after the last turn."""
        self._states[state.env] = state
        if state.env == self.env:
            self._emit(state)

    def emit_state(self) -> None:
        """Emit the watched state, if there is one."""
        state = self._states[self.env]
        if state is not None:
            self._emit(state)

    def observe(self, env: int, event: Event) -> None:
        """Keep an event of an environment, and emit it if that is watched."""
        if isinstance(event, EpisodeStarted):
            self._events[env] = []
        self._events[env].append(event)
        if env == self.env:
            self._emit(event)
            if isinstance(event, TurnFinished):
                self.turns += 1

    def watch(self, env: int) -> None:
        """Stream an environment from now on, its episode so far first; environments are counted in a circle."""
        self.env = env % len(self._events)
        self._emit(WatchChanged(env=self.env))
        for event in self._events[self.env]:
            self._emit(event)
        self.emit_state()
