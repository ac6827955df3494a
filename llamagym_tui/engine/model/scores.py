"""Log-probabilities of tokens and entropies from logits, in the memory of the logits.

Notation: S places of logits, N scored tokens, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor

AT_ONCE = 2**22
"""Numbers in the logits that are normalized at most, in one piece."""


def scored(
    logits: Tensor, places: Tensor, ids: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """(N,) log-probability of each token at its place, and (S,) entropies, the latter without gradient.

    Args:
        logits: (S, V), which are overwritten.
        places: (N,) place of each token.
        ids: (N,) of the tokens.
        temperature: divides the logits.
    """
    logprobs, entropies = _Scored.apply(logits, places, ids, temperature)
    return logprobs, entropies


def entropy(logprobs: Tensor) -> Tensor:
    """(N,) nats of N distributions given as (N, V) log-probabilities, which may be -inf."""
    # 0 times minus infinity would be no number; with the lowest number for it, gradients would overflow.
    return -(logprobs.exp() * logprobs.clamp(min=-1e4)).sum(-1)


class _Scored(torch.autograd.Function):
    """(N,) log-probabilities of tokens, and (S,) entropies, in the memory of the logits.

    The result is `logits.log_softmax(-1)[places, ids]`, with the same gradient. But that would hold logits,
    log-probabilities and the gradients of both, the largest tensors of an update. Here the log-probabilities are
    written over the logits, and the gradient over these.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, places: Tensor, ids: Tensor, temperature: float
    ) -> tuple[Tensor, Tensor]:
        entropies = []
        for piece in logits.split(max(1, AT_ONCE // logits.shape[-1])):  # views of the logits
            logprobs = piece.div_(temperature).log_softmax(-1)
            entropies.append(entropy(piece.copy_(logprobs)))
        entropy_of_places = torch.cat(entropies)
        ctx.save_for_backward(logits, places, ids)
        ctx.temperature = temperature
        ctx.mark_non_differentiable(entropy_of_places)
        return logits[places, ids], entropy_of_places

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        # With p the softmax of a place, d log p[token] / d logit[v] is (1 if v is the token else 0) - p[v].
        logprobs, places, ids = ctx.saved_tensors
        own = gradients[0] / ctx.temperature  # (N,)
        of_places = own.new_zeros(len(logprobs)).index_add_(0, places, own)  # (S,)
        gradient = logprobs.exp_().mul_(
            -of_places[:, None]
        )  # (S, V): the part with p, for all tokens of a place
        gradient.index_put_((places, ids), own, accumulate=True)  # and the 1 for each token
        return gradient, None, None, None
