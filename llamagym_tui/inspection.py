"""The reply that a person looks at token by token: what the trainer told of it, and apart from it what was asked.

A pure record beside the run state.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from llamagym_tui.protocol.commands import AnyCommand, InspectTurn
from llamagym_tui.protocol.events import AnyEvent, TurnInspected


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """A reply under inspection."""

    found: TurnInspected | None = None
    """The last answer that told tokens."""
    refused: TurnInspected | None = None
    """The last answer, if it was none but told why."""
    asked: InspectTurn | None = None
    """Asked for, not answered."""

    def asking(self, command: AnyCommand) -> Inspection:
        """With another command; the same object if that is on its way already, or is none of these."""
        if isinstance(command, InspectTurn) and command != self.asked:
            return replace(self, asked=command)
        return self

    def answered(self, event: AnyEvent) -> Inspection:
        """With what an event tells of a reply."""
        if not isinstance(event, TurnInspected):
            return self
        # An answer to an older request leaves the newer one pending.
        answers = self.asked is not None and (self.asked.episode, self.asked.turn) == (event.episode, event.turn)
        asked = None if answers else self.asked
        if event.why_not:
            return replace(self, refused=event, asked=asked)
        return Inspection(found=event, asked=asked)

    def ended(self) -> Inspection:
        """When nothing that was asked for will be answered any more."""
        return self if self.asked is None else replace(self, asked=None)

    def of(self, episode: int, turn: int) -> TurnInspected | None:
        """What was told of a reply, if it is the one told last."""
        found = self.found
        return found if found is not None and (found.episode, found.turn) == (episode, turn) else None

    def why_not(self, episode: int, turn: int) -> str:
        """Why nothing more is known of a reply; empty if that was not said."""
        refused = self.refused
        return refused.why_not if refused is not None and (refused.episode, refused.turn) == (episode, turn) else ""
