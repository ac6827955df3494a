"""The reference policy: the policy before PPO, from which the KL penalty keeps the trained one from drifting far.

It is the same model with the weights that were trained as they were at the start, put back for a forward.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from llamagym_tui.engine.policy.policy import Policy


class Reference:
    def __init__(self, policy: Policy) -> None:
        """The policy as it is now."""
        self.policy = policy
        trained = [
            weight for weight in policy.model.pretrained_model.parameters() if weight.requires_grad
        ]
        self.start = [(weight, weight.detach().clone()) for weight in trained]
        """The policy's weights, and their values at the start. Those of an adapter are not zero after a warm
        start, so a disabled adapter would be another policy than the one that PPO began from."""

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Run the policy with the reference's weights."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for weight, then in self.start:
            now = weight.data
            weight.data = then.data
            then.data = now
