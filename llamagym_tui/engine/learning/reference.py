"""The reference policy: the policy before PPO, from which the KL penalty keeps the trained one from drifting far.

It is the same model with the weights that were trained as they were at the start, put back for a forward.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from llamagym_tui.engine.learning.packing import Row, forwards, parts_of
from llamagym_tui.engine.model.shape import ForwardLimits
from llamagym_tui.engine.parallel import on_threads
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

    def logprobs(self, rows: Sequence[Row], decisions: int, limits: ForwardLimits) -> Tensor:
        """(D,) log-probability of each decision of a batch under the reference, in forwards of limited size."""
        temperature = self.policy.generation.temperature
        backbone = self.policy.model.backbone
        logprobs = torch.zeros(decisions, device=backbone.device)

        @torch.no_grad()
        def score(some: Sequence[Row]) -> None:
            for part in forwards(some, limits, backbone.device):
                scored = part.score(part.encode(backbone), temperature)
                logprobs[part.decisions.indices] = scored.logprobs

        with self.in_place():
            on_threads(score, parts_of(rows, self.policy.threads))
        return logprobs

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
