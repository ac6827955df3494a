"""How large the steps of an update are: a factor on the learning rate, which follows the KL that the steps make.

A learning rate that suits one model ruins another: at the same rate a step moves a model of 135 M parameters by a
hundred times the KL of one of 1 M. So each step is looked at by the minibatch behind it. Where the policy has moved too
far since it sampled the batch, the next steps are smaller, and a step that went much too far is undone. The scheduled
learning rate is the largest that there is. Source of the rule: the adaptive schedule of rsl_rl, arXiv:2109.11978.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

MUCH_TOO_FAR = 3.0
"""Times the KL that an update should make, beyond which a step is undone."""
TOO_FAR = 2.0
"""Times that KL, beyond which steps become smaller."""
NEAR = 0.5
"""Times that KL, below which steps become larger again."""
CHANGE = 1.5
"""By how much they do."""
LEAST = 1e-4
"""Of the factor."""


class Pace:
    def __init__(self, weights: Sequence[nn.Parameter], factor: float = 1.0) -> None:
        """Of the steps that an optimizer makes on these weights."""
        self.factor = factor
        """On the scheduled learning rate."""
        self._weights = weights
        self._before: list[Tensor] = []
        """The weights before the last step. Empty: none can be undone."""

    def end(self) -> None:
        """An update has ended: what comes next is not behind a step of it."""
        self._before = []

    def keep(self) -> None:
        """Keep the weights as they are, before a step."""
        self._before = [weight.detach().clone() for weight in self._weights]

    @torch.no_grad()
    def take_back(self, kl: float, wanted: float) -> bool:
        """Undo the last step if it went much too far, and halve those that follow; whether it was undone.

        Args:
            kl: nats a turn by which the policy has moved since it sampled the batch.
            wanted: nats a turn that an update should move it.
        """
        if not self._before or kl <= MUCH_TOO_FAR * wanted:
            return False
        for weight, before in zip(self._weights, self._before, strict=True):
            weight.copy_(before)
        self._before = []
        self._scale(0.5)
        return True

    def follow(self, kl: float, wanted: float) -> None:
        """Let the next step be smaller or larger, as the policy has moved too far by now, or less than it should."""
        if kl > TOO_FAR * wanted:
            self._scale(1 / CHANGE)
        elif kl < NEAR * wanted:
            self._scale(CHANGE)

    def _scale(self, by: float) -> None:
        self.factor = min(max(self.factor * by, LEAST), 1.0)
