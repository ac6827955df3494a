"""What is watched of a run, and how fast: what the trainer confirmed, and apart from it what was asked for.

Pure records beside the run state; the drawing of the watched state is one of its own, for it changes with every turn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from msgspec.structs import replace as with_fields

from llamagym_tui.protocol.commands import AnyCommand, DrawStates, SetPace, Step, Watch, WatchNext
from llamagym_tui.protocol.events import (
    AnyEvent,
    EpisodeFinished,
    ObservationShown,
    PaceChanged,
    PhaseChanged,
    StateDrawn,
    WarningRaised,
    WatchChanged,
)
from llamagym_tui.state.transcript import clipped

TURN_S = (0.0, 0.5, 1.5, 4.0)
"""Seconds between two turns at each speed: full speed, quick, reading pace, slow."""


FIRST = WatchChanged(kind="env", env=0)
"""What is watched when a run begins."""
MAX_PLACES = 64
"""Marked places of a drawing that are kept."""


@dataclass(frozen=True, kw_only=True)
class Watching:
    """What a person watches."""

    now: WatchChanged = FIRST
    turn_s: float = 0.0
    """Seconds between two turns of the watched environment, at least; 0: full speed."""
    asked: Watch | WatchNext | None = None
    """To be watched, not confirmed."""
    turn_s_asked: float | None = None
    """Speed, not confirmed."""
    step_asked: Step | None = None
    """A step, not begun."""

    @property
    def env_intended(self) -> int:
        """The environment that was asked for last, confirmed or not."""
        return self.asked.env if isinstance(self.asked, Watch) else self.now.env

    @property
    def turn_s_intended(self) -> float:
        """The speed that was asked for last, confirmed or not."""
        return self.turn_s if self.turn_s_asked is None else self.turn_s_asked

    def slower(self) -> float:
        """The next lower speed; the same at the lowest."""
        return min((turn_s for turn_s in TURN_S if turn_s > self.turn_s_intended), default=self.turn_s_intended)

    def faster(self) -> float:
        """The next higher speed; the same at full speed."""
        return max((turn_s for turn_s in TURN_S if turn_s < self.turn_s_intended), default=self.turn_s_intended)

    def asking(self, command: AnyCommand) -> Watching:
        """With another command; the same object if that is on its way already, or is none of these."""
        match command:
            case Watch() | WatchNext() if command != self.asked:
                return replace(self, asked=command)
            case SetPace(turn_s=turn_s) if turn_s != self.turn_s_intended:
                return replace(self, turn_s_asked=turn_s)
            case Step() if self.step_asked is None:
                return replace(self, step_asked=command)
            case _:
                return self

    def answered(self, event: AnyEvent) -> Watching:
        """With what an event confirms, without what it refuses."""
        match event:
            case WatchChanged():
                # An answer to an older request leaves the newer one pending.
                newer = isinstance(self.asked, Watch) and event.kind == "env" and event.env != self.asked.env
                return replace(self, now=event, asked=self.asked if newer else None)
            case PaceChanged(turn_s=turn_s):
                asked = None if turn_s == self.turn_s_asked else self.turn_s_asked
                return replace(self, turn_s=turn_s, turn_s_asked=asked)
            case PhaseChanged(phase="rolling_out" | "paused") | WarningRaised(refused="step") if self.step_asked:
                return replace(self, step_asked=None)
            case _:
                return self

    def ended(self) -> Watching:
        """When nothing that was asked for will be confirmed any more."""
        return replace(self, asked=None, turn_s_asked=None, step_asked=None)


@dataclass(frozen=True, kw_only=True)
class StateView:
    """The drawing of the watched state: of the step on show, and of an episode's last state until the next begins."""

    asked: bool = False
    """Whether the trainer was asked to draw."""
    drawn: StateDrawn | None = None
    """None: of what is on show there is no drawing."""
    finished: EpisodeFinished | None = None
    """The watched episode that ended last."""

    @property
    def result(self) -> EpisodeFinished | None:
        """How the drawn episode ended; None while it is under way."""
        drawn, finished = self.drawn, self.finished
        if drawn is None or finished is None:
            return None
        return finished if (drawn.episode, drawn.turn) == (finished.episode, finished.length) else None

    def asking(self, command: AnyCommand) -> StateView:
        """With another command; the same object if it changes nothing."""
        same = not isinstance(command, DrawStates) or command.on == self.asked
        return self if same else replace(self, asked=not self.asked)

    def answered(self, event: AnyEvent) -> StateView:
        """After an event; the same object if it changes nothing."""
        drawn = self.drawn
        match event:
            case StateDrawn():
                return replace(self, drawn=with_fields(event, text=clipped(event.text), marks=event.marks[:MAX_PLACES]))
            case EpisodeFinished():
                return replace(self, finished=event)
            case ObservationShown() if drawn is not None and (drawn.episode, drawn.turn) != (event.episode, event.turn):
                return replace(self, drawn=None)
            case WatchChanged() if drawn is not None and not event.awaits_failure:
                return replace(self, drawn=None)
            case _:
                return self


def watched_text(watched: WatchChanged, n_envs: int) -> str:
    """What is watched, for people."""
    where = f"environment {watched.env + 1:,}" + (f" of {n_envs:,}" if n_envs else "")
    if watched.awaits_failure:
        meanwhile = f"; until then {where}" if watched.kind == "env" else ""
        return f"waiting for the next reply that names no action{meanwhile}"
    match watched.kind:
        case "env":
            return f"watching {where}"
        case "failure":
            return f"a reply that names no action, in {where}; its episode is told to the end"
        case "best" | "worst":
            return f"the {watched.kind} episode of the last batch, told again"
