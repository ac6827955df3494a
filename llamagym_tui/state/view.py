"""The drawing of the watched state, with what is known of the agent's choice in it: a pure record."""

from msgspec import Struct
from msgspec.structs import replace

from llamagym_tui.protocol import events
from llamagym_tui.protocol.events import AnyEvent
from llamagym_tui.state.transcript import clipped

MAX_PLACES = 256
"""Most places of a kind that are kept of a drawing."""


class StateView(Struct, frozen=True, kw_only=True):
    """The drawing of the watched state; the last state of an episode stays until the next episode begins."""

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
        last_state = (self.finished.episode, self.finished.length)
        return self.finished if (self.drawn.episode, self.drawn.turn) == last_state else None

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
            case events.WatchChanged():
                return replace(self, drawn=None)
            case _:
                return self
