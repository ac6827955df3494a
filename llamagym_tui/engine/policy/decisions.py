"""What the policy decided, and how probable it is: sampled tokens, or replies chosen whole by their scores.

In the first case each sampled token is a decision under the vocabulary's softmax; in the second each turn is one,
under the softmax over the scores of admissible replies. Temperature divides logits or scores. The update scores by
the same functions as the rollout. Notation: S places of logits, N scored tokens, D decisions, K turns, M branches, A
admissible tokens or replies, V vocabulary.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from llamagym_tui.engine.policy.trajectory import Choice


class Decisions(NamedTuple):
    logprobs: Tensor
    """(D,) of each sampled token or chosen reply."""
    entropy: Tensor
    """(D,) nats of the distribution that was sampled; without gradient."""
    action_entropy: Tensor
    """(M,) nats of the distribution over actions: at branches, or of each choice."""


class ScoredTokens(NamedTuple):
    """Tokens to be scored, and the logits at the places that predict them."""

    logits: Tensor
    """(S, V) at distinct places."""
    places: Tensor
    """(N,) place that predicts each token."""
    ids: Tensor
    """(N,)."""


class Choices(NamedTuple):
    """How scored tokens make up choices among replies."""

    token_replies: Tensor
    """(N,) index of each token's reply among K x A."""
    divisors: Tensor
    """(K, A) of each reply's summed log-probability; infinite where a turn has fewer replies."""
    chosen: Tensor
    """(K,) index of the chosen reply."""


def token_decisions(
    tokens: ScoredTokens, branch_tokens: Tensor, branch_children: Tensor, temperature: float
) -> Decisions:
    """Each sampled token as a decision.

    Args:
        tokens: N sampled tokens.
        branch_tokens: (M,) index into the N tokens of those at which admissible replies part.
        branch_children: (M, A) admissible ids there, -1 where there are fewer.
        temperature: divides the logits.
    """
    logits = tokens.logits / temperature
    logprobs = logits.log_softmax(-1)
    return Decisions(
        logprobs[tokens.places, tokens.ids],
        token_entropy(logprobs.detach())[tokens.places],
        # The bonus is on this one: entropy over the vocabulary would reward replies that name no action.
        branch_entropy(logits[tokens.places[branch_tokens]], branch_children),
    )


def reply_decisions(tokens: ScoredTokens, choices: Choices, temperature: float) -> Decisions:
    """Each turn as a choice among replies; `temperature` divides the scores."""
    logprobs = tokens.logits.log_softmax(-1)[tokens.places, tokens.ids]
    shares = score_logprobs(reply_sums(logprobs, choices), choices.divisors, temperature)
    entropy = -(shares.exp() * shares.clamp(min=torch.finfo(shares.dtype).min)).sum(-1)
    return Decisions(shares.gather(1, choices.chosen[:, None]).squeeze(1), entropy.detach(), entropy)


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
    return (sums / divisors / temperature).masked_fill(divisors.isinf(), float("-inf")).log_softmax(-1)


def collated_choices(
    choices: Sequence[Choice], token_replies: Sequence[tuple[int, int]], device: torch.device
) -> Choices:
    """Choices of K turns as tensors; `token_replies` are turn and reply of each of N tokens."""
    widest = max(len(choice.divisors) for choice in choices)
    divisors = [[*choice.divisors, *[float("inf")] * (widest - len(choice.divisors))] for choice in choices]
    return Choices(
        torch.tensor([turn * widest + reply for turn, reply in token_replies], device=device),
        torch.tensor(divisors, device=device),
        torch.tensor([choice.chosen for choice in choices], device=device),
    )


def token_entropy(logprobs: Tensor) -> Tensor:
    """(N,) nats of N distributions given as (N, V) log-probabilities."""
    return -(logprobs.exp() * logprobs).sum(-1)


def branch_entropy(logits: Tensor, children: Tensor) -> Tensor:
    """(M,) nats of the action distribution at M branches.

    Args:
        logits: (M, V) at the branching tokens, temperature applied.
        children: (M, A) admissible ids, -1 where a branch has fewer.
    """
    chosen = logits.gather(1, children.clamp(min=0)).masked_fill(children < 0, float("-inf"))
    logprobs = chosen.log_softmax(-1)
    return -(logprobs.exp() * logprobs.masked_fill(children < 0, 0.0)).sum(-1)
