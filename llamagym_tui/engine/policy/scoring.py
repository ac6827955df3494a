"""Scoring admissible replies on given prompts: the policy's distribution over actions, without sampling.

Prompts that begin alike meet on one tree, so many of them cost little more than what they differ in.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from llamagym_tui.engine.model.forward import Encoded
from llamagym_tui.engine.policy.decisions import score_logprobs
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.tokens.action_trie import ActionTrie
from llamagym_tui.engine.tokens.token_tree import TokenTree, of_similar_size, tree_rows
from llamagym_tui.engine.tokens.tokenization import Opening

MOST_COLUMNS = 4096
"""Columns of one forward at most, padding included (one tree may be larger)."""
LOGITS_AT_ONCE = 2**25
"""Numbers in the logits of scored tokens at most, in one piece."""


@dataclass(slots=True)
class ScoredTree:
    """A tree of prompts and replies, and the tokens of the replies on it."""

    tree: TokenTree = field(default_factory=TokenTree)
    tokens: list[tuple[int, int, int]] = field(default_factory=list)
    """Of each: column that predicts it, id, number of its reply over all prompts."""


@torch.no_grad()
def probabilities_of_actions(
    policy: Policy, prompts: Sequence[Opening], trie: ActionTrie | None = None
) -> list[list[float]]:
    """Probability of each admissible reply on each prompt; where replies are sampled, other texts have the rest.

    `trie` has the replies, where the turns have their own.

    Raises:
        PromptTooLongError: the model cannot read one of them.
    """
    trie = trie or policy.trie
    for prompt in prompts:
        policy.require_fit(len(prompt.prefix) + len(prompt.rest), trie)
    if policy.generation.policy == "generate":
        return reply_logprobs(policy, prompts, trie.replies).exp().tolist()
    sums = reply_logprobs(policy, prompts, trie.replies, temperature=1.0)
    divisors = torch.tensor(policy.reply_divisors(trie), device=sums.device)
    return score_logprobs(sums, divisors, policy.generation.temperature).exp().tolist()


@torch.no_grad()
def reply_logprobs(
    policy: Policy, prompts: Sequence[Opening], replies: Sequence[Sequence[int]], *, temperature: float | None = None
) -> Tensor:
    """(B, A) log-probability of each of A replies, end included, on each of B prompts.

    Args:
        prompts: first prompts of episodes, or all ids before a reply.
        temperature: divides the logits. None: the policy's.
    """
    backbone = policy.model.backbone
    divisor = policy.generation.temperature if temperature is None else temperature
    sums = torch.zeros(len(prompts) * len(replies), device=backbone.device)
    by_prefix: dict[tuple[int, ...], list[int]] = {}
    for row, prompt in enumerate(prompts):
        by_prefix.setdefault(prompt.prefix, []).append(row)
    for prefix, rows in by_prefix.items():
        packed = _pack_into_trees(prompts, rows, replies)
        for group in of_similar_size(packed, lambda each: len(each.tree), MOST_COLUMNS):
            encoded = backbone.encode_trees(prefix, tree_rows([each.tree for each in group], backbone.device))
            owners, logprobs = _token_logprobs(encoded, group, divisor, backbone.vocabulary)
            sums.index_add_(0, owners, logprobs)
    return sums.reshape(len(prompts), len(replies))


def _pack_into_trees(
    prompts: Sequence[Opening], rows: Sequence[int], replies: Sequence[Sequence[int]]
) -> list[ScoredTree]:
    """Prompts of one prefix on trees, in order of their ids, so that those that begin alike share a tree."""
    packed: list[ScoredTree] = []
    for row in sorted(rows, key=lambda row: prompts[row].rest):
        rest = prompts[row].rest
        longest = max(replies, key=len)
        if not packed or not packed[-1].tree.takes([*rest, *longest[:-1]]):
            packed.append(ScoredTree())
        here = packed[-1]
        for number, reply in enumerate(replies):
            path = here.tree.insert([*rest, *reply[:-1]])[len(rest) - 1 :]
            owner = row * len(replies) + number
            here.tokens += [(column, token, owner) for column, token in zip(path, reply, strict=True)]
    return packed


def _token_logprobs(
    encoded: Encoded, group: Sequence[ScoredTree], temperature: float, vocabulary: int
) -> tuple[Tensor, Tensor]:
    """(N,) owner and (N,) log-probability of every scored token; logits once a place, in bounded pieces."""
    places: dict[tuple[int, int], int] = {}
    tokens = [
        (places.setdefault((row, column), len(places)), token, owner)
        for row, each in enumerate(group)
        for column, token, owner in each.tokens
    ]
    device = encoded.hidden.device
    at, ids, owners = torch.tensor(tokens, device=device).T
    rows, columns = torch.tensor(list(places), device=device).T
    logprobs = torch.empty(len(tokens), device=device)
    piece = max(1, LOGITS_AT_ONCE // vocabulary)
    for start in range(0, len(places), piece):
        logits = encoded.logits_at(rows[start : start + piece], columns[start : start + piece])
        here = (at >= start) & (at < start + piece)
        logprobs[here] = (logits / temperature).log_softmax(-1)[at[here] - start, ids[here]]
    return owners, logprobs
