"""A warm start as it is shown: asked for, under way, over; a pure record beside the run state.

An evaluation before and one after belong to it where they were asked for with it. Its memory is bounded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto

from llamagym_tui.protocol.events import (
    AnyEvent,
    EvaluationCancelled,
    EvaluationFinished,
    PhaseChanged,
    RunFinished,
    SessionFailed,
    WarmStartFinished,
    WarmStartProgressed,
    WarningRaised,
)

MAX_LOSSES = 240
"""Losses kept; at more, every second one goes."""


class Stage(Enum):
    """How far a warm start is."""

    NONE = auto()
    """Nobody asked for one."""
    ASKED = auto()
    """Not begun; an evaluation may be under way."""
    TRAINING = auto()
    EVALUATING = auto()
    """Trained; the evaluation after it is awaited."""
    OVER = auto()
    REFUSED = auto()


@dataclass(frozen=True, kw_only=True)
class Teaching:
    """The last warm start."""

    stage: Stage = Stage.NONE
    evaluates: bool = False
    """Whether evaluations before and after were asked for."""
    cancelling: bool = False
    """Whether its end was asked for and is not confirmed."""
    detail: str = ""
    """What is being done, or why nothing was."""
    step: int = 0
    steps: int = 0
    """In all; 0: not known yet."""
    losses: tuple[float, ...] = ()
    """Of the steps that were told, thinned out."""
    stride: int = 1
    """Losses told for one that is kept."""
    told: int = 0
    """Losses told."""
    before: EvaluationFinished | None = None
    after: EvaluationFinished | None = None
    result: WarmStartFinished | None = None

    @property
    def under_way(self) -> bool:
        """Whether one was asked for and has not ended."""
        return self.stage in (Stage.ASKED, Stage.TRAINING, Stage.EVALUATING)

    def heard(self, event: AnyEvent) -> Teaching:
        """After an event; the same object if it changes nothing."""
        match event:
            case PhaseChanged(phase="warm_starting"):
                begun = self if self.stage in (Stage.ASKED, Stage.TRAINING) else Teaching()
                return replace(begun, stage=Stage.TRAINING, detail=event.detail)
            case PhaseChanged(phase="evaluating") if self.under_way:
                return replace(self, detail=event.detail)
            case WarmStartProgressed():
                return self._progressed(event)
            case WarmStartFinished():
                # Who cancels it cancels the evaluation after it, too.
                stage = Stage.EVALUATING if self.evaluates and not event.cancelled else Stage.OVER
                return replace(self, stage=stage, result=event, step=event.steps, cancelling=False, detail="")
            case EvaluationFinished() if self.evaluates and self.stage is Stage.ASKED:
                return replace(self, before=event, detail="")
            case EvaluationFinished() if self.stage is Stage.EVALUATING:
                return replace(self, stage=Stage.OVER, after=event, detail="")
            case EvaluationCancelled() if self.stage is Stage.EVALUATING:
                return replace(self, stage=Stage.OVER, detail="")
            case WarningRaised(refused="warm_start"):
                return replace(self, stage=Stage.REFUSED, detail=event.message)
            case SessionFailed() | RunFinished() if self.under_way:
                return replace(self, stage=Stage.OVER, cancelling=False)
            case _:
                return self

    def _progressed(self, event: WarmStartProgressed) -> Teaching:
        losses, stride = self.losses, self.stride
        if self.told % stride == 0:
            losses = (*losses, event.loss)
        if len(losses) > MAX_LOSSES:
            losses, stride = losses[::2], stride * 2
        return replace(
            self,
            stage=Stage.TRAINING,
            step=event.step,
            steps=event.steps,
            losses=losses,
            stride=stride,
            told=self.told + 1,
            detail="",
        )


def asked_for(*, evaluates: bool) -> Teaching:
    """A warm start that was asked for just now."""
    return Teaching(stage=Stage.ASKED, evaluates=evaluates, detail="the trainer takes it up between two steps")
