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
    def turn_kl(self, rows: Sequence[Row], turns: int, *, tokens: int) -> Tensor:
        """(K,) nats: log(policy/reference) summed over each turn's decisions, the k1 estimate.

        Args:
            rows: all rows of a batch.
            turns: K of the batch.
            tokens: of one forward at most.
        """
        model, temperature = self.policy.model, self.policy.generation.temperature
        backbone = self._copy or model.backbone
        kl = torch.zeros(turns, device=backbone.device)
        disabled = nullcontext() if self._copy else model.pretrained_model.disable_adapter()
        with disabled:
            for part in forwards(rows, tokens=tokens, device=backbone.device):
                logprobs = part.decisions(part.encode(backbone), temperature).logprobs
                kl.index_add_(0, part.decision_turns, part.old_logprobs - logprobs)
        return kl
