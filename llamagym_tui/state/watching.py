"""The watched environment and its speed: confirmed by the trainer and, apart from that, only requested.

These are pure records. The drawing of the watched state has its own record, as it changes with every turn.
"""

from msgspec import Struct
from msgspec.structs import replace

from llamagym_tui.protocol import events
from llamagym_tui.protocol.commands import AnyCommand, DrawStates, SetPace, Step, Watch
from llamagym_tui.protocol.events import AnyEvent
from llamagym_tui.state.transcript import clipped

TURN_S = (0.0, 0.5, 1.5, 4.0)
"""Seconds between two turns at each speed: full speed, quick, reading pace, slow."""
FIRST = events.WatchChanged(env=0)
"""The watched environment when a run begins."""
MAX_PLACES = 256
"""Most places of a kind that are kept of a drawing."""


class Watching(Struct, frozen=True, kw_only=True):
    """The watched environment, its speed, and requests for others."""

    now: events.WatchChanged = FIRST
    """The watched environment."""
    turn_s: float = 0.0
    """Least number of seconds between two turns of the watched environment; 0: full speed."""
    requested: Watch | None = None
    """A request to watch something else that is not confirmed."""
    turn_s_requested: float | None = None
    """A requested speed that is not confirmed."""
    step_requested: Step | None = None
    """A requested step that has not begun."""

    @property
    def env_intended(self) -> int:
        """The environment that was requested last, confirmed or not."""
        return self.now.env if self.requested is None else self.requested.env

    @property
    def turn_s_intended(self) -> float:
        """The speed that was requested last, confirmed or not."""
        return self.turn_s if self.turn_s_requested is None else self.turn_s_requested

    def slower(self) -> float:
        """The next slower speed, or the present one if it is the slowest."""
        slower = [turn_s for turn_s in TURN_S if turn_s > self.turn_s_intended]
        return min(slower, default=self.turn_s_intended)

    def faster(self) -> float:
        """The next faster speed, or the present one if it is the fastest."""
        faster = [turn_s for turn_s in TURN_S if turn_s < self.turn_s_intended]
        return max(faster, default=self.turn_s_intended)

    def requesting(self, command: AnyCommand) -> "Watching":
        """The record once a command was requested; the same object if that changes nothing."""
        match command:
            case Watch() if command != self.requested:
                return replace(self, requested=command)
            case SetPace(turn_s=turn_s) if turn_s != self.turn_s_intended:
                return replace(self, turn_s_requested=turn_s)
            case Step() if self.step_requested is None:
                return replace(self, step_requested=command)
            case _:
                return self

    def after(self, event: AnyEvent) -> "Watching":
        """The record after an event; the same object if that changes nothing."""
        match event:
            case events.WatchChanged():
                requested = self.requested
                # An answer to an older request leaves the newer one pending.
                waits_for_another = requested is not None and event.env != requested.env
                return replace(self, now=event, requested=requested if waits_for_another else None)
            case events.PaceChanged(turn_s=turn_s):
                is_answer = turn_s == self.turn_s_requested
                return replace(
                    self,
                    turn_s=turn_s,
                    turn_s_requested=None if is_answer else self.turn_s_requested,
                )
            case (
                events.PhaseChanged(phase="rolling_out" | "paused")
                | events.WarningRaised(refused="step")
            ):
                return replace(self, step_requested=None) if self.step_requested else self
            case _:
                return self


class StateView(Struct, frozen=True, kw_only=True):
    """The drawing of the watched state; the last state of an episode stays until the next episode begins."""

    requested: bool = False
    """True if the trainer is asked to draw."""
    drawn: events.StateDrawn | None = None
    """The drawing of the shown state, if there is one."""
    finished: events.EpisodeFinished | None = None
    """The watched episode that ended last."""
    probed: events.ActionsProbed | None = None
    """The last probabilities of actions; they are of the drawn state if they are of its turn."""
    acted: events.TurnFinished | None = None
    """The watched turn that ended last, without its texts."""
    seen: str = ""
    """The observation that was shown last, in the agent's words."""

    @property
    def result(self) -> events.EpisodeFinished | None:
        """The end of the drawn episode; None while it is under way."""
        if self.drawn is None or self.finished is None:
            return None
        is_last_state = (
            self.drawn.episode == self.finished.episode and self.drawn.turn == self.finished.length
        )
        return self.finished if is_last_state else None

    def requesting(self, command: DrawStates) -> "StateView":
        """The record once a command was requested; the same object if that changes nothing."""
        return self if command.on == self.requested else replace(self, requested=command.on)

    def after(self, event: AnyEvent) -> "StateView":
        """The record after an event; the same object if that changes nothing."""
        drawn = self.drawn
        match event:
            case events.StateDrawn():
                bounded = replace(
                    event,
                    text=clipped(event.text),
                    grounds=event.grounds[:MAX_PLACES],
                )
                return replace(self, drawn=bounded)
            case events.EpisodeFinished():
                return replace(self, finished=event)
            case events.ActionsProbed():
                return replace(self, probed=event)
            case events.TurnFinished():
                return replace(self, acted=replace(event, reply="", words="", replaced=None))
            case events.ObservationShown():
                if drawn is not None and (drawn.episode, drawn.turn) != (event.episode, event.turn):
                    drawn = None
                return replace(self, drawn=drawn, seen=clipped(event.text))
            case events.WatchChanged() if drawn is not None:
                return replace(self, drawn=None)
            case _:
                return self


def watched_text(watched: events.WatchChanged, n_envs: int) -> str:
    """The watched environment, for people; `n_envs` is 0 while it is not known."""
    of_all = f" of {n_envs:,}" if n_envs else ""
    return f"watching environment {watched.env + 1:,}{of_all}"
