"""A head adapter that moves the logits of a few tokens alone, on a trunk that no update changes.

The logits of V tokens at S places are W h + B A h, and only those rows of B are not 0 that belong to tokens by which
replies name actions. So of the V logits of a place it is enough to keep those of the m tokens of admissible replies and
one sum over the others: the softmax under any B follows from these, and an update costs S x m in place of S x V. Free
text cannot be sampled from them: such an adapter chooses among the admissible replies.

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

    def is_whole(self, row: Encoded) -> bool:
        """True if a row has the logits of all these tokens."""
        return isinstance(row, NarrowEncoded) and row.moved.shape[-1] == len(self.ids)

    def added(self, hidden: Tensor) -> Tensor:
        """(N, m) the change of the logits of `ids` at N states; with gradient."""
        return self.shifts(hidden, self.down, self._rows_of_ids())

    def logits(self, hidden: Tensor) -> Tensor:
        """(N, V) logits of N hidden states, whole."""
        return self._base(hidden).index_add(-1, self.ids, self.added(hidden))

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

    def logits_at(self, rows: Tensor, columns: Tensor) -> Tensor:
        """(N, V) logits at N positions, in fp32."""
        return self.narrow.logits(self.hidden[rows, columns]).float()

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

    def logprobs_of(
        self, rows: Tensor, columns: Tensor, places: Tensor, ids: Tensor, temperature: float
    ) -> Tensor:
        """(N,) log-probability of tokens, each at one of S positions."""
        logprobs, _ = self.scorer_at(rows, columns, temperature)(places, ids)
        return logprobs

    @property
    def scores_per_place(self) -> int:
        """Numbers that are computed to score one position."""
        return self.moved.shape[-1]
