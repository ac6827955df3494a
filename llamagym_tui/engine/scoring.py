"""Scoring admissible replies on given prompts: the policy's distribution over actions, without sampling."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from llamagym_tui.engine.policy import Policy
from llamagym_tui.engine.tokenization import Opening


@torch.no_grad()
def reply_logprobs(
    policy: Policy, prompts: Sequence[Opening], replies: Sequence[Sequence[int]], *, temperature: float | None = None
) -> Tensor:
    """(B, A) log-probability of each of A replies, end included, on each of B prompts that share a prefix.

    Args:
        policy: model and temperature.
        prompts: first prompts of episodes, all with the same prefix.
        replies: ids of the admissible replies.
        temperature: divides the logits. None: the policy's.
    """
    rows: list[list[int]] = []
    places: list[tuple[int, int, int]] = []
    for prompt in prompts:
        for reply in replies:
            places += [(len(rows), len(prompt.rest) + at - 1, token) for at, token in enumerate(reply)]
            rows.append([*prompt.rest, *reply])
    backbone = policy.model.backbone
    at_rows, at_columns, tokens = torch.tensor(places, device=backbone.device).T
    logits = backbone.encode_rows(prompts[0].prefix, rows).logits_at(at_rows, at_columns)
    divisor = policy.generation.temperature if temperature is None else temperature
    logprobs = (logits / divisor).log_softmax(-1).gather(1, tokens[:, None]).squeeze(1)
    sums = torch.zeros(len(rows), device=backbone.device).index_add_(0, at_rows, logprobs)
    return sums.reshape(len(prompts), len(replies))
