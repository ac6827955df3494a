"""A warm start as it is shown: requested, under way, over; a pure record in bounded memory.

Evaluations before and after belong to it where they were requested with it.
"""

from dataclasses import dataclass, replace
from enum import Enum, auto

from llamagym_tui.protocol import events
from llamagym_tui.protocol.commands import CancelWarmStart, WarmStart
from llamagym_tui.protocol.events import AnyEvent

MAX_LOSSES = 7_200
"""Losses kept, the last ones: an hour of them, at two a second."""


class Stage(Enum):
    NONE = auto()
    REQUESTED = auto()
    """Not begun; the evaluation before it may be under way."""
    TRAINING = auto()
    EVALUATING = auto()
    """Trained; the evaluation after it is awaited."""
    OVER = auto()
    REFUSED = auto()


@dataclass(frozen=True, kw_only=True)
class WarmStartState:
    stage: Stage = Stage.NONE
    evaluates: bool = False
    """Whether evaluations before and after belong to it."""
    cancelling: bool = False
    """Whether its end is requested and not confirmed."""
    detail: str = ""
    """What is being done, or why nothing was."""
    step: int = 0
    steps: int = 0
    """In all; 0: not known yet."""
    losses: tuple[float, ...] = ()
    """At most `MAX_LOSSES`."""
    evaluated: events.WarmStartEvaluated | None = None
    result: events.WarmStartFinished | None = None

    @property
    def under_way(self) -> bool:
        """Whether one was requested and has not ended."""
        return self.stage in (Stage.REQUESTED, Stage.TRAINING, Stage.EVALUATING)

    def requesting(self, command: WarmStart | CancelWarmStart) -> "WarmStartState":
        if isinstance(command, CancelWarmStart):
            return self if self.cancelling else replace(self, cancelling=True)
        if self.under_way:
            return self
        waiting = "it starts when the current step ends"
        return WarmStartState(stage=Stage.REQUESTED, evaluates=command.episodes > 0, detail=waiting)

    def ended(self) -> "WarmStartState":
        """Once the session has ended, or its trainer is gone."""
        return replace(self, stage=Stage.OVER, cancelling=False) if self.under_way else self

    def after(self, event: AnyEvent) -> "WarmStartState":
        match event:
            case events.PhaseChanged(phase="warm_starting"):
                begun = (
                    self if self.stage in (Stage.REQUESTED, Stage.TRAINING) else WarmStartState()
                )
                return replace(begun, stage=Stage.TRAINING, detail=event.detail)
            case events.PhaseChanged(phase="evaluating") if self.under_way:
                return replace(self, detail=event.detail)
            case events.WarmStartProgressed():
                losses = (*self.losses, event.loss)[-MAX_LOSSES:]
                training = replace(self, stage=Stage.TRAINING, losses=losses, detail="")
                return replace(training, step=event.step, steps=event.steps)
            case events.WarmStartFinished():
                # Cancelling it cancels the evaluation after it, too.
                stage = Stage.EVALUATING if self.evaluates and not event.stats.cancelled else Stage.OVER
                return replace(
                    self, stage=stage, result=event, step=event.stats.steps, cancelling=False, detail=""
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
