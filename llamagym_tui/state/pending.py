"""Requests to the trainer that it has neither confirmed nor refused, and the reply under inspection: pure records."""

from msgspec import Struct, field
from msgspec.structs import replace

from llamagym_tui.protocol import commands, events
from llamagym_tui.protocol.commands import AnyCommand
from llamagym_tui.protocol.events import AnyEvent
from llamagym_tui.settings import Value


class Pending(Struct, frozen=True, kw_only=True):
    """Requests without an answer; one that is None, False or empty is not under way."""

    evaluation: commands.Evaluate | commands.ComparePrompts | None = None
    evaluation_cancelled: bool = False
    checkpoint: bool = False
    roll_back: bool = False
    policy_map: bool | None = None
    """The requested pace of the policy map: True for often, False for seldom. None if nothing is requested."""
    settings: dict[str, Value] = field(default_factory=dict)
    """The new values of settings by their dotted names."""
    probing: commands.ProbeActions | None = None

    def requesting(self, command: AnyCommand) -> "Pending":
        match command:
            case commands.Evaluate() | commands.ComparePrompts() if self.evaluation is None:
                return replace(self, evaluation=command)
            case commands.CancelEvaluation() if not self.evaluation_cancelled:
                return replace(self, evaluation_cancelled=True)
            case commands.SaveCheckpoint() if not self.checkpoint:
                return replace(self, checkpoint=True)
            case commands.RollBack() if not self.roll_back:
                return replace(self, roll_back=True)
            case commands.WatchPolicyMap(on=on) if on is not self.policy_map:
                return replace(self, policy_map=on)
            case commands.ChangeSettings(changes=changes) if (
                changes.items() - self.settings.items()
            ):
                return replace(self, settings={**self.settings, **changes})
            case commands.ProbeActions() if command != self.probing:
                return replace(self, probing=command)
            case _:
                return self

    def after(self, event: AnyEvent) -> "Pending":
        match event:
            case (
                events.EvaluationFinished()
                | events.PromptsCompared()
                | events.EvaluationCancelled()
            ):
                return replace(self, evaluation=None, evaluation_cancelled=False)
            case events.CheckpointSaved() | events.WarningRaised(refused="checkpoint"):
                return replace(self, checkpoint=False)
            case events.RolledBack() | events.WarningRaised(refused="roll_back"):
                return replace(self, roll_back=False)
            case events.SettingsChanged(changes=changes):
                left = {name: value for name, value in self.settings.items() if name not in changes}
                return replace(self, settings=left)
            case events.PolicyMapWatched(on=on) if on is self.policy_map:
                return replace(self, policy_map=None)
            case events.WarningRaised(refused="settings"):
                return replace(self, settings={})
            case events.ConversationProbed() if (
                self.probing and event.ticket == self.probing.ticket
            ):
                return replace(self, probing=None)
            case _:
                return self


class Inspection(Struct, frozen=True, kw_only=True):
    """The inspector's knowledge of a reply, and its open question."""

    found: events.TurnInspected | None = None
    """The last answer with tokens."""
    refused: events.TurnInspected | None = None
    """The last answer, if it has no tokens but only the reason why not."""
    requested: commands.InspectTurn | None = None
    """A request that is not answered."""

    def requesting(self, command: commands.InspectTurn) -> "Inspection":
        return self if command == self.requested else replace(self, requested=command)

    def after(self, event: events.TurnInspected) -> "Inspection":
        requested = self.requested
        # An answer to an older request leaves the newer one pending.
        if requested is not None and _is_of(requested, event.episode, event.turn):
            requested = None
        if event.why_not:
            return replace(self, refused=event, requested=requested)
        return Inspection(found=event, requested=requested)

    def of(self, episode: int, turn: int) -> events.TurnInspected | None:
        """The tokens of a reply, if it was the last one inspected."""
        if self.found is not None and _is_of(self.found, episode, turn):
            return self.found
        return None

    def why_not(self, episode: int, turn: int) -> str:
        """Why nothing more is known of a reply; empty if no reason was given."""
        if self.refused is not None and _is_of(self.refused, episode, turn):
            return self.refused.why_not
        return ""


def _is_of(message: events.TurnInspected | commands.InspectTurn, episode: int, turn: int) -> bool:
    """True if a question or an answer is about that reply."""
    return message.episode == episode and message.turn == turn
