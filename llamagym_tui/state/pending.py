"""What was asked of the trainer and is neither confirmed nor refused: a pure record beside the run state.

Mode, pause and prompt have a field of their own in `run_state`; here are the other commands. Nothing in it is shown
as active.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from llamagym_tui.config import Value
from llamagym_tui.protocol.commands import (
    AnyCommand,
    CancelEvaluation,
    ChangeSettings,
    Evaluate,
    InspectTurn,
    RollBack,
    SaveCheckpoint,
    WatchPolicyMap,
)
from llamagym_tui.protocol.events import (
    AnyEvent,
    CheckpointSaved,
    EvaluationCancelled,
    EvaluationFinished,
    PolicyMapWatched,
    RolledBack,
    SettingsChanged,
    TurnInspected,
    WarningRaised,
)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Commands on their way."""

    evaluation: Evaluate | None = None
    evaluation_cancelled: bool = False
    checkpoint: bool = False
    roll_back: bool = False
    policy_map: bool | None = None
    """Whether the policy map is to be told closely. None: nothing was asked."""
    settings: dict[str, Value] = field(default_factory=dict)
    """New values by dotted names."""

    def asking(self, command: AnyCommand) -> Asked:
        """With another command; the same object if that is on its way already, or is none of these."""
        match command:
            case Evaluate() if self.evaluation is None:
                return replace(self, evaluation=command)
            case CancelEvaluation() if not self.evaluation_cancelled:
                return replace(self, evaluation_cancelled=True)
            case SaveCheckpoint() if not self.checkpoint:
                return replace(self, checkpoint=True)
            case RollBack() if not self.roll_back:
                return replace(self, roll_back=True)
            case WatchPolicyMap(on=on) if on is not self.policy_map:
                return replace(self, policy_map=on)
            case ChangeSettings(changes=changes) if changes.items() - self.settings.items():
                return replace(self, settings={**self.settings, **changes})
            case _:
                return self

    def answered(self, event: AnyEvent) -> Asked:
        """Without what an event confirms or refuses."""
        match event:
            case EvaluationFinished() | EvaluationCancelled():
                return replace(self, evaluation=None, evaluation_cancelled=False)
            case CheckpointSaved() | WarningRaised(refused="checkpoint"):
                return replace(self, checkpoint=False)
            case RolledBack() | WarningRaised(refused="roll_back"):
                return replace(self, roll_back=False)
            case SettingsChanged(changes=changes):
                return replace(
                    self, settings={name: value for name, value in self.settings.items() if name not in changes}
                )
            case PolicyMapWatched(on=on) if on is self.policy_map:
                return replace(self, policy_map=None)
            case WarningRaised(refused="settings"):
                return replace(self, settings={})
            case _:
                return self


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
