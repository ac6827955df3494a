"""The wheel: whether a person acts in the agent's place, as the trainer has confirmed it and as it is requested.

A pure record.
"""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from llamagym_tui.protocol.commands import Act, AnyCommand, LetGo, TakeWheel
from llamagym_tui.protocol.events import (
    ActionAwaited,
    AnyEvent,
    TurnFinished,
    WarningRaised,
    WheelLetGo,
    WheelTaken,
)


class WheelState(Struct, frozen=True, kw_only=True):
    """Who acts, and what the person has requested."""

    taken: WheelTaken | None = None
    """The person's choices; None while the agent acts."""
    requested: TakeWheel | LetGo | None = None
    """A request to take the wheel or to let it go that is not confirmed."""
    awaited: ActionAwaited | None = None
    """The turn that waits for the person; None while other environments play or the model learns."""
    acted: Act | None = None
    """The person's action, if it is not confirmed."""
    fault: str = ""
    """Why the last request was refused; empty: it was not."""

    @property
    def is_wanted(self) -> bool:
        """True if the person has the wheel or has asked for it."""
        return self.taken is not None or isinstance(self.requested, TakeWheel)

    @property
    def is_persons_turn(self) -> bool:
        """True if the person can act now."""
        return (
            self.taken is not None
            and self.awaited is not None
            and self.acted is None
            and self.requested is None
        )

    def requesting(self, command: AnyCommand) -> "WheelState":
        """The wheel once a command was requested; the same object if that changes nothing."""
        match command:
            case TakeWheel() if not self.is_wanted:
                return replace(self, requested=command, fault="")
            case LetGo() if self.is_wanted and not isinstance(self.requested, LetGo):
                return replace(self, requested=command, fault="")
            case Act(episode=episode, turn=turn) if self.is_persons_turn and self._awaits(
                episode, turn
            ):
                return replace(self, acted=command, fault="")
            case _:
                return self

    def _awaits(self, episode: int, turn: int) -> bool:
        """True if this turn waits; when a key is pressed twice, the next one may be waiting already."""
        if self.awaited is None:
            return False
        return self.awaited.episode == episode and self.awaited.turn == turn

    def after(self, event: AnyEvent) -> "WheelState":
        """The wheel after an event; the same object if that changes nothing."""
        match event:
            case WheelTaken():
                requested = self.requested if isinstance(self.requested, LetGo) else None
                return replace(self, taken=event, requested=requested, fault="")
            case WheelLetGo():
                return WheelState()
            case ActionAwaited():
                return replace(self, awaited=event, acted=None, fault="")
            case TurnFinished(episode=episode, turn=turn) if self._awaits(episode, turn):
                return replace(self, awaited=None, acted=None, fault="")
            case WarningRaised(refused="wheel", message=message):
                requested = None if isinstance(self.requested, TakeWheel) else self.requested
                return replace(self, requested=requested, acted=None, fault=message)
            case _:
                return self


def wheel_texts(wheel: WheelState, key: Callable[[str, str], str]) -> list[str]:
    """Lines about the wheel for other screens; none if nobody has it."""
    if isinstance(wheel.requested, LetGo):
        return ["The wheel is let go as soon as the trainer confirms it."]
    if wheel.taken is None and wheel.requested is None:
        return []
    if wheel.taken is None:
        return ["The wheel is requested; the trainer confirms it soon."]
    where = f"YOU HAVE THE WHEEL of environment {wheel.taken.env + 1:,}"
    waits = "; the run waits for your action" if wheel.awaited is not None else ""
    return [f"{where}{waits}. {key('wheel', 'w')} goes back to it."]
