"""The reference policy: what the model said before PPO. With an adapter, the same model with the adapter disabled;
with full fine-tuning, a frozen copy."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import Tensor

from llamagym_tui.engine.batch import Row, forwards
from llamagym_tui.engine.forward import Backbone
from llamagym_tui.engine.policy import Policy


class Reference:
    """Scores replies under the weights of the start."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._copy: Backbone | None = None
        if not policy.model.is_adapted:
            lm = copy.deepcopy(policy.model.causal_lm).requires_grad_(False).eval()
            self._copy = Backbone(lm)

    @torch.no_grad()
    def logprobs(self, rows: Sequence[Row], decisions: int, *, tokens: int, scored: int | None = None) -> Tensor:
        """(D,) log-probability of each decision of a batch under the reference.

        Args:
            rows: all rows of the batch.
            decisions: D of the batch.
            tokens: of one forward at most.
            scored: of these, tokens whose logits are needed, at most. None: no limit.
        """
        model, temperature = self.policy.model, self.policy.generation.temperature
        backbone = self._copy or model.backbone
        logprobs = torch.zeros(decisions, device=backbone.device)
        disabled = nullcontext() if self._copy else model.pretrained_model.disable_adapter()
        with disabled:
            for part in forwards(rows, tokens=tokens, scored=scored, device=backbone.device):
                logprobs[part.decisions] = part.decided(part.encode(backbone), temperature).logprobs
        return logprobs
