"""The reference policy: what the model said before PPO. With an adapter, the same model with the adapter's weights of
then; with full fine-tuning, a frozen copy."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from llamagym_tui.engine.learning.batch import Row, forwards
from llamagym_tui.engine.model.forward import Backbone
from llamagym_tui.engine.policy.policy import Policy


class Reference:
    """Scores replies under the weights of the start."""

    def __init__(self, policy: Policy) -> None:
        """The policy as it is now."""
        self.policy = policy
        self._copy: Backbone | None = None
        self._adapter: list[tuple[nn.Parameter, Tensor]] = []
        """Weights of the adapter, and what they were; small beside the model."""
        if policy.model.is_adapted:
            trained = [weight for weight in policy.model.pretrained_model.parameters() if weight.requires_grad]
            self._adapter = [(weight, weight.detach().clone()) for weight in trained]
        else:
            lm = copy.deepcopy(policy.model.causal_lm).requires_grad_(False).eval()
            self._copy = Backbone(lm, policy.model.precision)

    @torch.no_grad()
    def logprobs(self, rows: Sequence[Row], decisions: int, *, tokens: int, scored: int | None = None) -> Tensor:
        """(D,) log-probability of each decision of a batch under the reference.

        Args:
            rows: all rows of the batch.
            decisions: D of the batch.
            tokens: of one forward at most.
            scored: of these, tokens whose logits are needed, at most. None: no limit.
        """
        temperature = self.policy.generation.temperature
        backbone = self._copy or self.policy.model.backbone
        logprobs = torch.zeros(decisions, device=backbone.device)
        with self._adapter_as_it_was():
            for part in forwards(rows, tokens=tokens, scored=scored, device=backbone.device):
                logprobs[part.decisions] = part.decided(part.encode(backbone), temperature).logprobs
        return logprobs

    @contextmanager
    def _adapter_as_it_was(self) -> Iterator[None]:
        now = [weight.data for weight, _ in self._adapter]
        for weight, then in self._adapter:
            weight.data = then
        try:
            yield
        finally:
            for (weight, _), data in zip(self._adapter, now, strict=True):
                weight.data = data
