"""A warm start as it is shown, from request to end; a pure record in bounded memory.

The evaluations before and after it belong to it if they were requested with it.
"""

from enum import Enum, auto

from msgspec import Struct
from msgspec.structs import replace

from llamagym_tui.protocol import events
from llamagym_tui.protocol.commands import CancelWarmStart, WarmStart
from llamagym_tui.protocol.events import AnyEvent

MAX_LOSSES = 7_200
"""The number of last losses that are kept: an hour of them, if there are two in a second."""


class Stage(Enum):
    """Stages of a warm start."""

    NONE = auto()
    """There is none."""
    REQUESTED = auto()
    """It has not begun; the evaluation before it may be under way."""
    TRAINING = auto()
    EVALUATING = auto()
    """It has trained; the evaluation after it is under way."""
    OVER = auto()
    REFUSED = auto()


class WarmStartState(Struct, frozen=True, kw_only=True):
    """A warm start as it is shown."""

    stage: Stage = Stage.NONE
    evaluates: bool = False
    """True if evaluations before and after belong to it."""
    cancelling: bool = False
    """True while its end is requested and not confirmed."""
    detail: str = ""
    """The work under way, or the reason why nothing was done."""
    step: int = 0
    steps: int = 0
    """The number of all its steps; 0: not known yet."""
    losses: tuple[float, ...] = ()
    """Its last losses, at most `MAX_LOSSES`."""
    evaluated: events.WarmStartEvaluated | None = None
    result: events.WarmStartFinished | None = None

    @property
    def under_way(self) -> bool:
        """True from its request to its end."""
        return self.stage in (Stage.REQUESTED, Stage.TRAINING, Stage.EVALUATING)

    def requesting(self, command: WarmStart | CancelWarmStart) -> "WarmStartState":
        """The warm start once a command was requested; the same object if that changes nothing."""
        if isinstance(command, CancelWarmStart):
            return self if self.cancelling else replace(self, cancelling=True)
        if self.under_way:
            return self
        waiting = "it starts when the current step ends"
        return WarmStartState(stage=Stage.REQUESTED, evaluates=command.episodes > 0, detail=waiting)

    def ended(self) -> "WarmStartState":
        """The warm start once the session has ended, or its trainer is gone."""
        return replace(self, stage=Stage.OVER, cancelling=False) if self.under_way else self

    def after(self, event: AnyEvent) -> "WarmStartState":
        """The warm start after an event; the same object if that changes nothing."""
        match event:
            case events.PhaseChanged(phase="warm_starting"):
                begun = self
                if self.stage not in (Stage.REQUESTED, Stage.TRAINING):
                    begun = WarmStartState()
                return replace(begun, stage=Stage.TRAINING, detail=event.detail)
            case events.PhaseChanged(phase="evaluating") if self.under_way:
                return replace(self, detail=event.detail)
            case events.WarmStartProgressed():
                losses = (*self.losses, event.loss)
                return replace(
                    self,
                    stage=Stage.TRAINING,
                    losses=losses[-MAX_LOSSES:],
                    detail="",
                    step=event.step,
                    steps=event.steps,
                )
            case events.WarmStartFinished():
                # Cancelling a warm start also cancels the evaluation after it.
                is_evaluated_now = self.evaluates and not event.stats.cancelled
                return replace(
                    self,
                    stage=Stage.EVALUATING if is_evaluated_now else Stage.OVER,
                    result=event,
                    step=event.stats.steps,
                    cancelling=False,
                    detail="",
                )
            case events.WarmStartEvaluated():
                return replace(self, stage=Stage.OVER, evaluated=event, detail="")
            case events.EvaluationCancelled() if self.under_way:
                stage = Stage.OVER if self.stage is Stage.EVALUATING else self.stage
                return replace(self, stage=stage, evaluates=False, detail="")
            case events.WarningRaised(refused="warm_start"):
                return replace(self, stage=Stage.REFUSED, detail=event.message)
            case _:
                return self
