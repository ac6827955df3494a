"""The reference policy: the policy before PPO, from which the KL penalty keeps the trained one from drifting far.

Full fine-tuning needs a frozen copy of the model. With an adapter none is needed: the reference is the same model with
the weights that the adapter had at the start, put back for a forward. They take little memory.
"""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor, nn

from llamagym_tui.engine.learning.batch import Row, forwards
from llamagym_tui.engine.model.forward import Backbone
from llamagym_tui.engine.model.shape import ForwardLimits
from llamagym_tui.engine.policy.policy import Policy


class Reference:
    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.frozen_copy: Backbone | None = None
        self.start: list[tuple[nn.Parameter, Tensor]]
        """The policy's weights, and their values at the start. Those of an adapter are not zero after a warm
        start, so a disabled adapter would be another policy than the one that PPO began from."""
        if policy.model.is_adapted:
            trained = [weight for weight in policy.model.pretrained_model.parameters() if weight.requires_grad]
            self.start = [(weight, weight.detach().clone()) for weight in trained]
        else:
            lm = copy.deepcopy(policy.model.causal_lm).requires_grad_(False).eval()
            backbone = policy.model.backbone
            self.frozen_copy = Backbone(lm, policy.model.precision, shares=backbone.shares)
            self.frozen_copy.flat_is_exact = backbone.flat_is_exact
            self.start = list(zip(policy.model.causal_lm.parameters(), lm.parameters(), strict=True))

    @torch.no_grad()
    def logprobs(self, rows: Sequence[Row], decisions: int, limits: ForwardLimits) -> Tensor:
        """(D,) log-probability of each decision of a batch under the reference, in forwards of limited size."""
        temperature = self.policy.generation.temperature
        backbone = self.frozen_copy or self.policy.model.backbone
        logprobs = torch.zeros(decisions, device=backbone.device)
        with self.in_place() if self.frozen_copy is None else nullcontext():
            for part in forwards(rows, limits, backbone.device):
                logprobs[part.decisions.indices] = part.score(part.encode(backbone), temperature).logprobs
        return logprobs

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The policy has the reference's weights meanwhile."""
        now = [weight.data for weight, _ in self.start]
        for weight, then in self.start:
            weight.data = then.data
        try:
            yield
        finally:
            for (weight, _), data in zip(self.start, now, strict=True):
                weight.data = data
