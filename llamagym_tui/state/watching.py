"""What is watched of a run, and how fast: what the trainer confirmed and, apart from it, what is only requested.

Pure records; the drawing of the watched state is one of its own, for it changes with every turn.
"""

from dataclasses import dataclass, replace

from msgspec.structs import replace as with_fields

from llamagym_tui.protocol import events
from llamagym_tui.protocol.commands import AnyCommand, DrawStates, SetPace, Step, Watch, WatchNext
from llamagym_tui.protocol.events import AnyEvent
from llamagym_tui.state.transcript import clipped

TURN_S = (0.0, 0.5, 1.5, 4.0)
"""Seconds between two turns at each speed: full speed, quick, reading pace, slow."""
FIRST = events.WatchChanged(kind="env", env=0)
"""What is watched when a run begins."""
MAX_PLACES = 64
"""Marked places of a drawing that are kept."""


@dataclass(frozen=True, kw_only=True)
class Watching:
    now: events.WatchChanged = FIRST
    turn_s: float = 0.0
    """Seconds between two turns of the watched environment, at least; 0: full speed."""
    requested: Watch | WatchNext | None = None
    """To be watched, not confirmed."""
    turn_s_requested: float | None = None
    """Speed, not confirmed."""
    step_requested: Step | None = None
    """A step, not begun."""

    @property
    def env_intended(self) -> int:
        """The environment that was requested last, confirmed or not."""
        return self.requested.env if isinstance(self.requested, Watch) else self.now.env

    @property
    def turn_s_intended(self) -> float:
        return self.turn_s if self.turn_s_requested is None else self.turn_s_requested

    def slower(self) -> float:
        return min(
            (turn_s for turn_s in TURN_S if turn_s > self.turn_s_intended),
            default=self.turn_s_intended,
        )

    def faster(self) -> float:
        return max(
            (turn_s for turn_s in TURN_S if turn_s < self.turn_s_intended),
            default=self.turn_s_intended,
        )

    def requesting(self, command: AnyCommand) -> "Watching":
        match command:
            case Watch() | WatchNext() if command != self.requested:
                return replace(self, requested=command)
            case SetPace(turn_s=turn_s) if turn_s != self.turn_s_intended:
                return replace(self, turn_s_requested=turn_s)
            case Step() if self.step_requested is None:
                return replace(self, step_requested=command)
            case _:
                return self

    def after(self, event: AnyEvent) -> "Watching":
        match event:
            case events.WatchChanged():
                # An answer to an older request leaves the newer one pending.
                wanted = self.requested
                newer = (
                    isinstance(wanted, Watch) and event.kind == "env" and event.env != wanted.env
                )
                return replace(self, now=event, requested=wanted if newer else None)
            case events.PaceChanged(turn_s=turn_s):
                requested = None if turn_s == self.turn_s_requested else self.turn_s_requested
                return replace(self, turn_s=turn_s, turn_s_requested=requested)
            case (
                events.PhaseChanged(phase="rolling_out" | "paused")
                | events.WarningRaised(refused="step")
            ):
                return replace(self, step_requested=None) if self.step_requested else self
            case _:
                return self


@dataclass(frozen=True, kw_only=True)
class StateView:
    """The drawing of the watched state: of the step on show, and of an episode's last state until the next begins."""

    requested: bool = False
    """Whether the trainer is to draw."""
    drawn: events.StateDrawn | None = None
    """None: of what is on show there is no drawing."""
    finished: events.EpisodeFinished | None = None
    """The watched episode that ended last."""

    @property
    def result(self) -> events.EpisodeFinished | None:
        """How the drawn episode ended; None while it is under way."""
        drawn, finished = self.drawn, self.finished
        if drawn is None or finished is None:
            return None
        return (
            finished if (drawn.episode, drawn.turn) == (finished.episode, finished.length) else None
        )

    def requesting(self, command: DrawStates) -> "StateView":
        return self if command.on == self.requested else replace(self, requested=command.on)

    def after(self, event: AnyEvent) -> "StateView":
        drawn = self.drawn
        match event:
            case events.StateDrawn():
                return replace(
                    self,
                    drawn=with_fields(
                        event, text=clipped(event.text), marks=event.marks[:MAX_PLACES]
                    ),
                )
            case events.EpisodeFinished():
                return replace(self, finished=event)
            case events.ObservationShown() if drawn is not None:
                same_step = (drawn.episode, drawn.turn) == (event.episode, event.turn)
                return self if same_step else replace(self, drawn=None)
            case events.WatchChanged() if drawn is not None and not event.awaits_failure:
                return replace(self, drawn=None)
            case _:
                return self


def watched_text(watched: events.WatchChanged, n_envs: int) -> str:
    where = f"environment {watched.env + 1:,}" + (f" of {n_envs:,}" if n_envs else "")
    if watched.awaits_failure:
        meanwhile = f"; until then {where}" if watched.kind == "env" else ""
        return f"waiting for a reply without an action{meanwhile}"
    match watched.kind:
        case "env":
            return f"watching {where}"
        case "failure":
            return f"a reply without an action, in {where}"
        case "best" | "worst":
            return f"the {watched.kind} episode of the last batch, shown again"
