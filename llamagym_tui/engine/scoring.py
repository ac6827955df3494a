"""Scoring admissible replies on given prompts: the policy's distribution over actions, without sampling."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from llamagym_tui.engine.policy import Policy
from llamagym_tui.engine.token_tree import TokenTree, tree_rows
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
    trees: list[TokenTree] = []
    places: list[tuple[int, int, int, int]] = []
    for row, prompt in enumerate(prompts):
        trees.append(TokenTree())
        for number, reply in enumerate(replies):
            path = trees[-1].insert([*prompt.rest, *reply[:-1]])[len(prompt.rest) - 1 :]
            owner = row * len(replies) + number
            places += [(row, column, token, owner) for column, token in zip(path, reply, strict=True)]
    backbone = policy.model.backbone
    rows, columns, tokens, owners = torch.tensor(places, device=backbone.device).T
    encoded = backbone.encode_trees(prompts[0].prefix, tree_rows(trees, backbone.device))
    divisor = policy.generation.temperature if temperature is None else temperature
    logprobs = (encoded.logits_at(rows, columns) / divisor).log_softmax(-1).gather(1, tokens[:, None]).squeeze(1)
    sums = torch.zeros(len(prompts) * len(replies), device=backbone.device).index_add_(0, owners, logprobs)
    return sums.reshape(len(prompts), len(replies))
