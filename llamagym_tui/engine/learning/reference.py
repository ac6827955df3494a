"""The reference policy: the policy before PPO, from which the KL penalty keeps the trained one from drifting far.

It is the same model with the weights that were trained as they were at the start, put back for a forward.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from llamagym_tui.engine.learning.batch import Row, forwards, parts_of
from llamagym_tui.engine.model.shape import ForwardLimits
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.threads import on_threads


class Reference:
    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        trained = [weight for weight in policy.model.pretrained_model.parameters() if weight.requires_grad]
        self.start = [(weight, weight.detach().clone()) for weight in trained]
        """The policy's weights, and their values at the start. Those of an adapter are not zero after a warm
        start, so a disabled adapter would be another policy than the one that PPO began from."""

    def logprobs(self, rows: Sequence[Row], decisions: int, limits: ForwardLimits) -> Tensor:
        """(D,) log-probability of each decision of a batch under the reference, in forwards of limited size."""
        temperature, backbone = self.policy.generation.temperature, self.policy.model.backbone
        logprobs = torch.zeros(decisions, device=backbone.device)

        @torch.no_grad()
        def score(some: Sequence[Row]) -> None:
            for part in forwards(some, limits, backbone.device):
                logprobs[part.decisions.indices] = part.score(part.encode(backbone), temperature).logprobs

        with self.in_place():
            on_threads(score, parts_of(rows, self.policy.threads))
        return logprobs

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The policy has the reference's weights meanwhile; shards are copied, when all ranks are there."""
        if self.policy.model.backbone.shards:
            with self._copied():
                yield
            return
        now = [weight.data for weight, _ in self.start]
        for weight, then in self.start:
            weight.data = then
        try:
            yield
        finally:
            for (weight, _), data in zip(self.start, now, strict=True):
                weight.data = data

    @contextmanager
    def _copied(self) -> Iterator[None]:
        shards = self.policy.model.backbone.shards
        assert shards is not None
        shards.meet()
        now = [weight.detach().clone() for weight, _ in self.start]
        self._copy([then for _, then in self.start])
        try:
            yield
            shards.meet()
        finally:
            self._copy(now)

    @torch.no_grad()
    def _copy(self, values: Sequence[Tensor]) -> None:
        for (weight, _), value in zip(self.start, values, strict=True):
            weight.copy_(value)
