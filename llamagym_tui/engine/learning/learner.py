"""What a learner is for those who use one: it changes the policy, batch by batch, and keeps what that needs.

The run gives it batches, the inspector reads what its last updates used, and a checkpoint keeps its `state` and the
tensors of its optimizer: a learner that gets these back goes on exactly. How it computes advantages, losses and steps
is its own matter. `llamagym_tui.engine.learning.ppo` is one, and `llamagym_tui.engine.learning.learners` lists all.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from msgspec import Struct
from torch import Tensor

from llamagym_tui.config import PPOConfig, UpdateStats
from llamagym_tui.engine.learning.inspection import UsedBatch
from llamagym_tui.engine.learning.packing import PackedRows, Row
from llamagym_tui.engine.learning.reference import Reference
from llamagym_tui.engine.model.forward import Encoded
from llamagym_tui.engine.policy.trajectory import Trajectory

RandomState = tuple[int, tuple[int, ...], float | None]
"""The state of a `random.Random`."""


class LearnerState(Struct, frozen=True, kw_only=True):
    """What a learner has become, apart from weights and the optimizer's tensors; no settings.

    A learner that has become more adds fields in a class of its own.
    """

    updates: int
    random: RandomState
    """From which minibatches are drawn."""

    def __post_init__(self) -> None:
        """Raises ValueError: `random` is no state of a `random.Random`."""
        random.Random().setstate(self.random)


class Learner(Protocol):
    config: PPOConfig
    """Settings; others may be put in their place between two updates."""
    reference: Reference | None
    """The policy that the trained one is kept near to. None: there is none."""
    optimizer: torch.optim.Optimizer
    """Its tensors are kept by a checkpoint."""

    @property
    def updates(self) -> int:
        """Updates made so far; a roll back takes some away."""
        ...

    @property
    def used(self) -> Sequence[UsedBatch]:
        """What the last updates trained on, the newest last, for the inspector."""
        ...

    @property
    def state(self) -> LearnerState:
        """From which `restore` goes on."""
        ...

    def update(
        self,
        trajectories: Sequence[Trajectory],
        *,
        should_stop: Callable[[], bool] = ...,
        progress: Callable[[int, int], None] = ...,
    ) -> UpdateStats:
        """Change the policy by one batch of episodes; the figures of that, but for those of the rollout.

        Args:
            trajectories: the batch.
            should_stop: called between two optimizer steps; True ends the update, and the steps made stay.
            progress: called before each optimizer step with those made so far, and those of the whole update.
        Raises:
            StoodStill: there was something to follow, and no weight of the policy has moved.
        """
        ...

    def encoded(self, rows: Sequence[Row]) -> Iterable[tuple[PackedRows, Encoded]]:
        """Rows in the parts that are computed at once, with what the model says of each."""
        ...

    def begin_anew(self) -> None:
        """Forget what was learnt by prompts of another form than those that follow."""
        ...

    def takes(self, moments: Mapping[int, Mapping[str, Tensor]]) -> bool:
        """Whether the tensors of an optimizer, for each trained weight by its number, may be put into this one."""
        ...

    def restore(self, state: Any) -> None:
        """Go on from the `state` of a learner of the same kind; what the last updates used is not known then."""
        ...

    def use_prompt(self, prompt: str) -> bool:
        """Go on with what was learnt under a system prompt; whether other weights play now."""
        ...

    def under_prompt(self, prompt: str) -> AbstractContextManager[None]:
        """The policy plays meanwhile with what was learnt under a system prompt."""
        ...

    def reseed(self, seed: int) -> None:
        """Draw from another seed on."""
        ...

    def share(self) -> None:
        """Let the learners of all ranks be as that of rank 0; all ranks call it."""
        ...
