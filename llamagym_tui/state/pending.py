"""Requests to the trainer that it has neither confirmed nor refused: the newest of each kind."""

from typing import TypeVar

from msgspec import Struct

from llamagym_tui.protocol import commands, events
from llamagym_tui.protocol.commands import AnyCommand
from llamagym_tui.protocol.events import AnyEvent
from llamagym_tui.settings import Value

C = TypeVar("C")

OPPOSITES = (
    (commands.Pause, commands.Resume),
    (commands.TakeWheel, commands.LetGo),
)
"""Kinds of requests of which the newer one replaces the other."""
REFUSABLE: dict[events.Refused, tuple[type, ...]] = {
    "settings": (commands.ChangeSettings,),
    "checkpoint": (commands.SaveCheckpoint,),
    "roll_back": (commands.RollBack,),
    "step": (commands.Step,),
    "warm_start": (commands.WarmStart, commands.CancelWarmStart),
    "wheel": (commands.TakeWheel, commands.Act),
}
"""The requests that a refusal ends."""

CONFIRMED_BY: dict[type[AnyCommand], type[AnyEvent]] = {
    commands.SetMode: events.ModeChanged,
    commands.SetSystemPrompt: events.PromptChanged,
    commands.SetPace: events.PaceChanged,
    commands.Watch: events.WatchChanged,
    commands.InspectTurn: events.TurnInspected,
    commands.ProbeActions: events.ConversationProbed,
    commands.TakeWheel: events.WheelTaken,
    commands.LetGo: events.WheelLetGo,
    commands.SaveCheckpoint: events.CheckpointSaved,
    commands.RollBack: events.RolledBack,
    commands.CancelWarmStart: events.WarmStartFinished,
}
"""The events that confirm requests, by having the same values in the fields that both have."""


class Pending(Struct, frozen=True):
    """Requests without an answer, the newest last."""

    commands: tuple[AnyCommand, ...] = ()

    def of(self, *kinds: type[C]) -> C | None:
        """The request of these kinds, if there is one."""
        for command in self.commands:
            if isinstance(command, kinds):
                return command
        return None

    @property
    def settings(self) -> dict[str, Value]:
        """The requested values of settings by their dotted names."""
        values: dict[str, Value] = {}
        for command in self.commands:
            if isinstance(command, commands.ChangeSettings):
                values |= command.changes
        return values

    def requesting(self, command: AnyCommand) -> "Pending":
        """The requests with another one, in place of its predecessor; each setting waits for itself."""
        replaced: tuple[type, ...] = (type(command),)
        for kinds in OPPOSITES:
            if isinstance(command, kinds):
                replaced = kinds
        if isinstance(command, commands.ChangeSettings):
            replaced = ()
        others = [each for each in self.commands if not isinstance(each, replaced)]
        return Pending((*others, command))

    def without(self, command: AnyCommand) -> "Pending":
        """The requests but for one."""
        return Pending(tuple(each for each in self.commands if each != command))

    def after(self, event: AnyEvent) -> "Pending":
        """The requests that an event does not answer; the same object if it answers none."""
        left = tuple(command for command in self.commands if not answers(event, command))
        return self if len(left) == len(self.commands) else Pending(left)


def answers(event: AnyEvent, command: AnyCommand) -> bool:
    """True if an event confirms or refuses a request; the answer to an older one leaves the newer one pending."""
    confirmation = CONFIRMED_BY.get(type(command))
    if confirmation is not None and isinstance(event, confirmation):
        return _has_same_values(event, command)
    match command, event:
        case _, events.WarningRaised(refused=refused):
            return refused is not None and isinstance(command, REFUSABLE[refused])
        case commands.Pause(), events.PhaseChanged(phase=phase):
            return phase == "paused"
        case commands.Resume(), events.PhaseChanged(phase=phase):
            return phase != "paused"
        case commands.Step(), events.PhaseChanged(phase=phase):
            return phase in ("rolling_out", "paused")
        case commands.ChangeSettings(changes=changes), events.SettingsChanged():
            return changes.keys() <= event.changes.keys()
        case commands.Act(), events.TurnFinished():
            return (event.episode, event.turn) == (command.episode, command.turn)
        case commands.TakeWheel() | commands.Act(), events.WheelLetGo():
            return True
        case (
            commands.Evaluate() | commands.ComparePrompts() | commands.CancelEvaluation(),
            events.EvaluationFinished() | events.PromptsCompared() | events.EvaluationCancelled(),
        ):
            return True
        case commands.WarmStart(episodes=episodes), events.WarmStartFinished(stats=stats):
            # Cancelling a warm start also cancels the evaluation after it.
            return not episodes or stats.cancelled
        case commands.WarmStart(), events.WarmStartEvaluated():
            return True
        case _:
            return False


def _has_same_values(event: AnyEvent, command: AnyCommand) -> bool:
    """True if an event has a command's own value in each field that both have."""
    shared = set(command.__struct_fields__) & set(event.__struct_fields__)
    return all(getattr(event, name) == getattr(command, name) for name in shared)
