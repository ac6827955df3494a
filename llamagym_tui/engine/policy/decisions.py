"""The policy's decisions and their log-probabilities: sampled tokens, or replies chosen whole by score.

A sampled token is a decision under the vocabulary's softmax. A chosen reply is one under the softmax over the scores of
admissible replies. Temperature divides logits or scores. Rollout, update and probes score by the same functions.

Notation: S places of logits, N scored tokens, D decisions, K turns, M branches, A
admissible tokens or replies, V vocabulary.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from llamagym_tui.engine.model.forward import Encoded, Scorer, entropy
from llamagym_tui.engine.policy.policy import Policy, states_of
from llamagym_tui.engine.policy.trajectory import Choice
from llamagym_tui.engine.tokens.token_tree import ROOT, ActionTrie, padded
from llamagym_tui.engine.tokens.tokenization import Opening

PROMPTS_AT_ONCE = 128
"""Prompts whose admissible replies are scored in one piece."""


class Decisions(NamedTuple):
    logprobs: Tensor
    """(D,) log-probability of each sampled token or chosen reply."""
    entropy: Tensor
    """(D,) nats of the distribution that was sampled; without gradient."""
    action_entropy: Tensor
    """(M,) nats of the distribution over actions: at branches, or of each choice."""


class Choices(NamedTuple):
    """Scored tokens as choices among replies."""

    token_replies: Tensor
    """(N,) index of each token's reply among K x A."""
    divisors: Tensor
    """(K, A) what each reply's summed log-probability is divided by; infinite where a turn has fewer replies."""
    chosen: Tensor
    """(K,) index of the chosen reply."""


def token_decisions(
    score: Scorer,
    places: Tensor,
    ids: Tensor,
    branch_tokens: Tensor,
    branch_children: Tensor,
) -> Decisions:
    """Each sampled token as a decision.

    Args:
        score: scores tokens at distinct places, temperature applied.
        places: (N,) place that predicts each sampled token.
        ids: (N,) of these tokens.
        branch_tokens: (M,) index into the N tokens of those at which admissible replies part.
        branch_children: (M, A) admissible ids there, -1 where there are fewer.
    """
    # Sampled tokens, then all that were admissible where replies part, are scored in one piece.
    parting = places[branch_tokens].repeat_interleave(branch_children.shape[1])  # (M A,)
    every_place = torch.cat([places, parting])
    every_id = torch.cat([ids, branch_children.clamp(min=0).flatten()])
    logprobs, entropies = score(every_place, every_id)
    # The bonus is on the entropy of branches: entropy over the vocabulary would reward replies that name no action.
    of_children = logprobs[len(ids) :].view(branch_children.shape)  # (M, A)
    of_children = of_children.masked_fill(branch_children < 0, float("-inf"))
    among = of_children.log_softmax(-1)
    return Decisions(
        logprobs=logprobs[: len(ids)],
        entropy=entropies[places],
        action_entropy=entropy(among),
    )


def reply_decisions(
    score: Scorer, places: Tensor, ids: Tensor, choices: Choices, temperature: float
) -> Decisions:
    """Each turn as a choice among replies; `temperature` divides their scores, and not the logits."""
    logprobs, _ = score(places, ids)
    shares = score_logprobs(reply_sums(logprobs, choices), choices.divisors, temperature)
    among = entropy(shares)
    return Decisions(
        logprobs=shares.gather(1, choices.chosen[:, None]).squeeze(1),
        entropy=among.detach(),
        action_entropy=among,
    )


def reply_sums(logprobs: Tensor, choices: Choices) -> Tensor:
    """(K, A) of each reply's token log-probabilities, from those of N tokens."""
    sums = torch.zeros(choices.divisors.numel(), dtype=logprobs.dtype, device=logprobs.device)
    return sums.index_add(0, choices.token_replies, logprobs).reshape(choices.divisors.shape)


def score_logprobs(sums: Tensor, divisors: Tensor, temperature: float) -> Tensor:
    """(K, A) log-probability of choosing each reply: softmax of its score over the temperature.

    Args:
        sums: (K, A) of each reply's token log-probabilities.
        divisors: (K, A), or what broadcasts to it; a sum over it is a score (1: ``sum``, the reply's number of tokens:
            ``token``, of words: ``word``). Infinite where a turn has fewer replies.
        temperature: divides the scores.
    Source: arXiv:2302.02662 (sum), arXiv:2401.14151 (token, word).
    """
    scores = sums / divisors / temperature
    return scores.masked_fill(divisors.isinf(), float("-inf")).log_softmax(-1)


def collated_choices(
    choices: Sequence[Choice], token_replies: Sequence[tuple[int, int]], device: torch.device
) -> Choices:
    """Choices of K turns as tensors; `token_replies` are turn and reply of each of N tokens."""
    widest = max(len(choice.divisors) for choice in choices)
    # Replies that a turn does not have are padding, which `score_logprobs` gives the probability 0.
    divisors = [padded(choice.divisors, widest, math.inf) for choice in choices]
    owners = [turn * widest + reply for turn, reply in token_replies]
    chosen = [choice.chosen for choice in choices]
    return Choices(
        token_replies=torch.tensor(owners, device=device),
        divisors=torch.tensor(divisors, device=device),
        chosen=torch.tensor(chosen, device=device),
    )


@torch.no_grad()
def token_logprobs(encoded: Encoded, trie: ActionTrie, temperature: float = 1.0) -> Tensor:
    """(B, N) log-probability of each token of the admissible replies, reply after reply.

    Args:
        encoded: B rows of 1 + M columns, as `states_of` gives them.
        trie: the admissible replies.
        temperature: divides the logits.
    """
    device = encoded.hidden.device
    count, width = encoded.hidden.shape[:2]
    # A token's distribution is that after the node before it, which replies that begin alike share.
    before = [node + 1 for path in trie.paths for node in (ROOT, *path)]
    columns_before = torch.tensor(before, dtype=torch.long, device=device)  # (N,)
    tokens = [token for reply in trie.replies for token in reply]
    ids = torch.tensor(tokens, dtype=torch.long, device=device)  # (N,)
    columns = torch.arange(width, device=device)
    found: list[Tensor] = []
    for rows in torch.arange(count, device=device).split(PROMPTS_AT_ONCE):
        score = encoded.scorer_at(
            rows.repeat_interleave(width), columns.repeat(len(rows)), temperature
        )
        places = torch.arange(len(rows), device=device)[:, None] * width + columns_before
        logprobs, _ = score(places.flatten(), ids.repeat(len(rows)))
        found.append(logprobs.view(len(rows), -1))
    return torch.cat(found)


def sums_of_replies(logprobs: Tensor, trie: ActionTrie) -> Tensor:
    """(B, A) log-probability of each reply, from those (B, N) of all their tokens."""
    owners = [reply for reply, ids in enumerate(trie.replies) for _ in ids]
    sums = logprobs.new_zeros(len(logprobs), len(trie.replies))
    return sums.index_add(1, torch.tensor(owners, device=logprobs.device), logprobs)


@torch.no_grad()
def reply_logprobs(
    policy: Policy, prompts: Sequence[Opening], trie: ActionTrie, temperature: float = 1.0
) -> Tensor:
    """(B, A) log-probability of each of A replies, end included, on each of B prompts.

    `temperature` divides the logits.
    """
    encoded = states_of(policy, prompts, trie)
    return sums_of_replies(token_logprobs(encoded, trie, temperature), trie)


def shares_of_choices(policy: Policy, sums: Tensor, trie: ActionTrie) -> Tensor:
    """(B, A) log-probability of choosing each reply under the policy's settings, from that (B, A) of its tokens."""
    divisors = torch.tensor(policy.reply_divisors(trie), device=sums.device)
    return score_logprobs(sums, divisors, policy.generation.temperature)


@torch.no_grad()
def probabilities_of_actions(
    policy: Policy, prompts: Sequence[Opening], trie: ActionTrie | None = None
) -> list[list[float]]:
    """Probability of each action on each prompt. Where replies are sampled, other texts have the rest.

    Args:
        prompts: all ids before a reply.
        trie: the admissible replies. None: those of every turn.
    Raises:
        PromptTooLongError: the model cannot read one of them.
    """
    trie = trie or policy.trie
    for prompt in prompts:
        policy.require_fit(len(prompt.prefix) + len(prompt.rest), trie)
    if policy.generation.policy == "generate":
        shares = reply_logprobs(policy, prompts, trie, policy.generation.temperature).exp()
    else:
        shares = shares_of_choices(policy, reply_logprobs(policy, prompts, trie), trie).exp()
    actions = torch.tensor(trie.actions, dtype=torch.long, device=shares.device)
    of_actions = shares.new_zeros(len(shares), 1 + max(trie.actions, default=-1))
    return of_actions.index_add(1, actions, shares).tolist()
