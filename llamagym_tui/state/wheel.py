"""The wheel: whether a person acts in the agent's place, as the trainer confirmed it and as it is requested.

A pure record.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from llamagym_tui.protocol.commands import Act, AnyCommand, LetGo, TakeWheel
from llamagym_tui.protocol.events import (
    ActionAwaited,
    AnyEvent,
    TurnFinished,
    WarningRaised,
    WheelLetGo,
    WheelTaken,
)


@dataclass(frozen=True, kw_only=True)
class Wheel:
    taken: WheelTaken | None = None
    """What the person can do; None: the agent acts."""
    requested: TakeWheel | LetGo | None = None
    """Not confirmed."""
    awaited: ActionAwaited | None = None
    """The turn that waits for the person; None: the others play, or the model learns."""
    acted: Act | None = None
    """The person's action, not confirmed."""
    fault: str = ""
    """Why the last request was refused."""

    @property
    def is_wanted(self) -> bool:
        """Whether the person acts, or waits for that."""
        return self.taken is not None or isinstance(self.requested, TakeWheel)

    @property
    def is_persons_turn(self) -> bool:
        return (
            self.taken is not None
            and self.awaited is not None
            and self.acted is None
            and self.requested is None
        )

    def requesting(self, command: AnyCommand) -> "Wheel":
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
        """Whether that is the turn that waits: a second press may come after the next turn has begun to wait."""
        return self.awaited is not None and (self.awaited.episode, self.awaited.turn) == (
            episode,
            turn,
        )

    def after(self, event: AnyEvent) -> "Wheel":
        match event:
            case WheelTaken():
                requested = self.requested if isinstance(self.requested, LetGo) else None
                return replace(self, taken=event, requested=requested, fault="")
            case WheelLetGo():
                return Wheel()
            case ActionAwaited():
                return replace(self, awaited=event, acted=None, fault="")
            case TurnFinished(episode=episode, turn=turn) if self._awaits(episode, turn):
                return replace(self, awaited=None, acted=None, fault="")
            case WarningRaised(refused="wheel", message=message):
                requested = None if isinstance(self.requested, TakeWheel) else self.requested
                return replace(self, requested=requested, acted=None, fault=message)
            case _:
                return self


def wheel_texts(wheel: Wheel, key: Callable[[str, str], str]) -> list[str]:
    """Texts for screens other than the wheel's own; none if nobody has it."""
    if isinstance(wheel.requested, LetGo):
        return ["The wheel is let go as soon as the trainer confirms it."]
    if wheel.taken is None:
        return (
            ["The wheel is requested; the trainer confirms it soon."]
            if wheel.requested is not None
            else []
        )
    where = f"YOU HAVE THE WHEEL of environment {wheel.taken.env + 1:,}"
    waits = "; the run waits for your action" if wheel.awaited is not None else ""
    return [f"{where}{waits}. {key('wheel', 'w')} goes back to it."]
