"""The wheel as the UI knows it: what the trainer confirmed of a person's acting in the agent's place, and what was
asked for.

A pure record beside the run state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from llamagym_tui.protocol.commands import Act, AnyCommand, LetGo, TakeWheel
from llamagym_tui.protocol.events import ActionAwaited, AnyEvent, TurnFinished, WarningRaised, WheelLetGo, WheelTaken


@dataclass(frozen=True, kw_only=True)
class Wheel:
    """Who acts in the watched environment."""

    taken: WheelTaken | None = None
    """What the person can do; None: the agent acts."""
    asked: TakeWheel | LetGo | None = None
    """To be taken or let go, not confirmed."""
    awaited: ActionAwaited | None = None
    """The turn that waits for the person; None: the others play, or the model learns."""
    acted: Act | None = None
    """The person's action, not confirmed."""
    fault: str = ""
    """Why the last thing that was asked for was not done."""

    @property
    def is_wanted(self) -> bool:
        """Whether the person acts, or waits for that."""
        return self.taken is not None or isinstance(self.asked, TakeWheel)

    @property
    def is_persons_turn(self) -> bool:
        """Whether the person can act now."""
        return self.taken is not None and self.awaited is not None and self.acted is None and self.asked is None

    def asking(self, command: AnyCommand) -> Wheel:
        """With another command; the same object if that is on its way already, is not possible, or is none of these."""
        match command:
            case TakeWheel() if not self.is_wanted:
                return replace(self, asked=command, fault="")
            case LetGo() if self.is_wanted and not isinstance(self.asked, LetGo):
                return replace(self, asked=command, fault="")
            case Act() if self.is_persons_turn:
                return replace(self, acted=command, fault="")
            case _:
                return self

    def answered(self, event: AnyEvent) -> Wheel:
        """With what an event confirms, without what it refuses."""
        match event:
            case WheelTaken():
                return replace(self, taken=event, asked=self.asked if isinstance(self.asked, LetGo) else None, fault="")
            case WheelLetGo():
                return Wheel()
            case ActionAwaited():
                return replace(self, awaited=event, acted=None, fault="")
            case TurnFinished(episode=episode, turn=turn) if self.awaited is not None:
                was_awaited = (self.awaited.episode, self.awaited.turn) == (episode, turn)
                return replace(self, awaited=None, acted=None, fault="") if was_awaited else self
            case WarningRaised(refused="wheel", message=message):
                asked = None if isinstance(self.asked, TakeWheel) else self.asked
                return replace(self, asked=asked, acted=None, fault=message)
            case _:
                return self


def wheel_texts(wheel: Wheel, key: Callable[[str, str], str]) -> list[str]:
    """What to say of the wheel where it is not seen; nothing if nobody has it.

    Args:
        wheel: as it is known now.
        key: tells the key of a binding, from its id and what to say if it has none.
    """
    if isinstance(wheel.asked, LetGo):
        return ["The wheel is let go as soon as the trainer confirms it."]
    if wheel.taken is None:
        return ["The wheel is asked for; the trainer confirms it soon."] if wheel.asked is not None else []
    where = f"YOU HAVE THE WHEEL of environment {wheel.taken.env + 1:,}"
    waits = "; the run waits for your action" if wheel.awaited is not None else ""
    return [f"{where}{waits}. {key('wheel', 'w')} goes back to it."]
