"""A head adapter that moves the logits of a few tokens alone, on a trunk that no update changes.

The logits of V tokens at S places are W h + B A h, and only those rows of B are not 0 that belong to tokens by which
replies name actions. So of the V logits of a place it is enough to keep those of the m tokens of admissible replies and
one sum over the others: the softmax under any B follows from these, and an update costs S x m in place of S x V. Free
text cannot be sampled from them: such an adapter chooses among the admissible replies. Its critic is a regression.

Notation: S places, m tokens of replies, K directions, D hidden size, V vocabulary, N scored tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from llamagym_tui.engine.model.forward import Encoded, Scorer
from llamagym_tui.engine.own_torch import own_torch

LOGITS_AT_ONCE = 2**25
"""Numbers in the logits of places that are looked at, at most, in one piece."""
PENALTY = 1000.0
"""Of the squared weights, in states that say nothing."""
MEMORY = 0.9
"""Weight of earlier states after an update."""


class NarrowHead:
    """An LM head with a low-rank adapter (PEFT's), and the tokens whose logits it may move."""

    def __init__(self, head: Any) -> None:
        """`head` is the model's output layer with a fresh adapter of PEFT's."""
        self._base: nn.Module = head.base_layer
        self.down: nn.Parameter = head.lora_A["default"].weight
        """(K, D), A: the directions that it sees; 0 until they are measured, and never trained."""
        self.up: nn.Parameter = head.lora_B["default"].weight
        """(V, K), B: the trained weights; only the rows of `ids` are not 0."""
        self.is_blank = not head.base_layer.weight.any()
        """True if the head below the adapter is 0, as in a model of first layers."""
        self.scale: float = head.scaling["default"]
        """Factor of B A h, the change of the logits."""
        self.ids = torch.empty(0, dtype=torch.long, device=self.up.device)
        """(m,) the tokens of admissible replies."""
        self._place_of: Tensor = torch.full((len(self.up),), -1, device=self.up.device)
        """(V,) place of each token among `ids`, or -1."""
        self.trained: list[int] = []
        """The tokens whose rows of B are trained, ascending: those at which admissible replies part."""
        self.rows: Tensor | None = None
        """(m, K) rows of B of `ids` while an update changes them. None: they are in B."""
        # Of an adapter that was trained before, maybe on replies in other tokens.
        self.include(self.up.detach().any(1).nonzero().flatten().tolist(), ())

    @own_torch()
    def include(self, ids: Iterable[int], trained: Iterable[int]) -> None:
        """Keep the logits of these tokens too, and train those of some; earlier results are no longer whole."""
        new = sorted(set(ids) - set(self.ids.tolist()))
        if new:
            self.ids = torch.cat([self.ids, torch.tensor(new, device=self.ids.device)])
            self._place_of[self.ids] = torch.arange(len(self.ids), device=self.ids.device)
        self.trained = sorted({*self.trained, *trained})

    def kept(self, encoded: Encoded) -> NarrowEncoded:
        """Keep the logits that move and the sum of the others; without gradient."""
        hidden = encoded.hidden.detach()
        shape = hidden.shape[:-1]
        if self.is_blank:
            no_logits = hidden.new_zeros(*shape, len(self.ids))
            of_others = hidden.new_full(shape, math.log(len(self.up) - len(self.ids)))
            return NarrowEncoded(self, hidden, no_logits, of_others)
        flat = hidden.reshape(-1, hidden.shape[-1])
        moved: list[Tensor] = []
        others: list[Tensor] = []
        for piece in flat.split(max(1, LOGITS_AT_ONCE // len(self.up))):
            with torch.no_grad():
                logits = self._base(piece).float()
            moved.append(logits[:, self.ids])
            others.append(logits.index_fill(1, self.ids, float("-inf")).logsumexp(-1))
        return NarrowEncoded(
            self,
            hidden,
            torch.cat(moved).reshape(*shape, -1),
            torch.cat(others).reshape(*shape),
        )

    def added(self, hidden: Tensor) -> Tensor:
        """(N, m) the change of the logits of `ids` at N states; with gradient."""
        return self.shifts(hidden, self.down, self._rows_of_ids())

    def shifts(self, hidden: Tensor, down: Tensor, rows: Tensor) -> Tensor:
        """(N, T) change of the logits of T tokens at N states, from (K, D) A and (T, K) rows of B."""
        return self.scale * (hidden @ down.T) @ rows.T

    def _rows_of_ids(self) -> Tensor:
        """(m, K) rows of B."""
        rows = self.up.detach()[self.ids]
        if self.rows is None:
            return rows
        trained = torch.tensor(self.trained, dtype=torch.long, device=self.ids.device)
        return torch.where(torch.isin(self.ids, trained)[:, None], self.rows, rows)

    def among(self, ids: Tensor) -> Tensor:
        """Places of tokens among those that move."""
        return self._place_of[ids]


class NarrowEncoded(Encoded):
    """Hidden states with the part of their logits that is kept."""

    def __init__(self, head: NarrowHead, hidden: Tensor, moved: Tensor, others: Tensor) -> None:
        super().__init__(head, hidden, moved, others)  # type: ignore[arg-type]
        self.narrow = head
        self.moved = moved
        """(B, T, m) base logits of the tokens that move."""
        self.others = others
        """(B, T) log of the sum of the other tokens' exponentials."""

    def scorer_at(self, rows: Tensor, columns: Tensor, temperature: float) -> Scorer:
        """Scores tokens that may move at S positions; only at temperature 1, as scores are divided by it."""
        assert temperature == 1.0, "an adapter on the head alone chooses by score"
        logits = self.moved[rows, columns] + self.narrow.added(self.hidden[rows, columns])
        total = torch.logaddexp(logits.logsumexp(-1), self.others[rows, columns])
        logprobs = logits - total[:, None]  # (S, m)

        def score(places: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
            # The entropy over the vocabulary is not needed: the decision is among replies.
            return logprobs[places, self.narrow.among(ids)], logprobs.new_zeros(len(logprobs))

        return score


class RidgeCritic(nn.Module):
    """A critic in closed form: ridge regression of returns on standardized hidden states; 0 before the first fit.

    It forgets by a constant factor an update, as the policy that it judges changes. Its memory is sums, so that it goes
    on from a checkpoint exactly.
    """

    mean: Tensor
    scale: Tensor
    products: Tensor
    moments: Tensor
    weight: Tensor
    bias: Tensor

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.register_buffer("mean", torch.zeros(hidden_size))
        self.register_buffer("scale", torch.ones(hidden_size))
        # Sums over all states x: of the outer products of (1, x), and of its products with the return.
        self.register_buffer("products", torch.zeros(hidden_size + 1, hidden_size + 1))
        self.register_buffer("moments", torch.zeros(hidden_size + 1))
        self.register_buffer("weight", torch.zeros(hidden_size))
        self.register_buffer("bias", torch.zeros(()))

    def forward(self, hidden: Tensor) -> Tensor:
        """(..., D) hidden states to (...) values, in fp32."""
        return ((hidden.float() - self.mean) / self.scale) @ self.weight + self.bias

    @torch.no_grad()
    def fit(self, hidden: Tensor, returns: Tensor) -> None:
        """Take in a batch.

        Args:
            hidden: (N, D) states; those of the first batch set the standard.
            returns: (N,) of each.
        """
        hidden = hidden.float()
        if not self.products.any():
            self.mean.copy_(hidden.mean(0))
            self.scale.copy_(hidden.std(0, unbiased=False).clamp(min=1e-6))
        standard = (hidden - self.mean) / self.scale
        seen = torch.cat([torch.ones(len(standard), 1, device=standard.device), standard], dim=1)
        self.products.mul_(MEMORY).add_(seen.T @ seen)
        self.moments.mul_(MEMORY).add_(seen.T @ returns)
        penalty = torch.full_like(self.moments, PENALTY)
        penalty[0] = 1e-3  # the mean return is no weight that should be small
        # (X'X + penalty) w = X'y, in fp64: the states of a model are nearly dependent.
        system = self.products.double() + torch.diag(penalty.double())
        solved = torch.linalg.solve(system, self.moments.double()).float()
        self.bias.copy_(solved[0])
        self.weight.copy_(solved[1:])
