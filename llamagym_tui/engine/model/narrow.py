"""A head adapter that moves the logits of a few tokens alone, on a trunk that no update changes.

The logits of V tokens at S places are W h + B A h, and B has rows that are not 0 only for tokens by which replies name
actions. So of the V logits of a place it is enough to keep, once and for all, those of the m tokens of admissible
replies, and two sums over the others: what the softmax is under any B follows from these exactly, and an update costs
S x m in place of S x V.

Notation: S places, m tokens of replies, K directions, D hidden size, V vocabulary, N scored tokens.
"""

from __future__ import annotations

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
        """(V, K), B: what is trained; only the rows of `ids` are not 0."""
        self.scale: float = head.scaling["default"]
        """Times B A h is what is added to the logits."""
        self.temperature = 1.0
        """Divides the logits of what is kept of places."""
        self.ids = torch.empty(0, dtype=torch.long, device=self.up.device)
        """(m,) the tokens of admissible replies."""
        self._place_of: Tensor = torch.full((len(self.up),), -1, device=self.up.device)
        """(V,) place of each token among `ids`; -1: it is none of them."""
        self.trained: list[int] = []
        """The tokens whose rows of B are trained, ascending: those at which admissible replies part."""
        self.rows: Tensor | None = None
        """Their rows of B while an update changes them. None: they are in B."""
        # Of an adapter that was trained before, maybe on replies in other tokens.
        self.include(self.up.detach().any(1).nonzero().flatten().tolist(), ())

    @own_torch()
    def include(self, ids: Iterable[int], trained: Iterable[int]) -> None:
        """Keep the logits of these tokens too, and train those of some; what was kept before is no longer whole."""
        new = sorted(set(ids) - set(self.ids.tolist()))
        if new:
            self.ids = torch.cat([self.ids, torch.tensor(new, device=self.ids.device)])
            self._place_of[self.ids] = torch.arange(len(self.ids), device=self.ids.device)
        self.trained = sorted({*self.trained, *trained})

    def kept(self, encoded: Encoded) -> NarrowEncoded:
        """What is needed of each position, from its hidden state; without gradient."""
        hidden = encoded.hidden.detach()
        flat = hidden.reshape(-1, hidden.shape[-1])
        moved: list[Tensor] = []
        others: list[Tensor] = []
        for piece in flat.split(max(1, LOGITS_AT_ONCE // len(self.up))):
            with torch.no_grad():
                logits = self._base(piece).float() / self.temperature
            moved.append(logits[:, self.ids])
            logits[:, self.ids] = float("-inf")
            total = logits.logsumexp(-1)
            # The mean of the other logits under their own softmax, for the entropy; exp(-inf) * -inf would be NaN.
            mean = ((logits - total[:, None]).exp() * logits.clamp(min=-1e30)).sum(-1)
            others.append(torch.stack([total, mean], dim=-1))
        shape = hidden.shape[:-1]
        return NarrowEncoded(
            self,
            hidden,
            torch.cat(moved).reshape(*shape, -1),
            torch.cat(others).reshape(*shape, 2),
        )

    def is_whole(self, row: Encoded) -> bool:
        """Whether what was kept of a row has the logits of all these tokens."""
        return isinstance(row, NarrowEncoded) and row.moved.shape[-1] == len(self.ids)

    def plain(self, encoded: Encoded) -> Encoded:
        """A forward of which nothing is kept but hidden states: its logits are whole, with gradient."""
        return WholeEncoded(self, encoded.hidden.detach())

    def logits(self, hidden: Tensor) -> Tensor:
        """(N, V) logits of N hidden states, whole."""
        added = self.shifts(hidden, self.down, self._rows_of_ids())
        return self._base(hidden).index_add(-1, self.ids, added)

    def moved_logits(self, hidden: Tensor, moved: Tensor) -> Tensor:
        """(S, m) logits of the tokens of replies, temperature applied, from what was kept; with gradient."""
        return self.moved_logits_at(self.features(hidden), moved)

    def features(self, hidden: Tensor) -> Tensor:
        """(..., K) what the adapter sees of states."""
        return hidden @ self.down.T

    def moved_logits_at(self, features: Tensor, moved: Tensor) -> Tensor:
        """`moved_logits` from (S, K) features of the states."""
        return moved + self.scale * features @ self._rows_of_ids().T / self.temperature

    def shifts(self, hidden: Tensor, down: Tensor, rows: Tensor) -> Tensor:
        """(N, T) what an adapter adds to the logits of T tokens at N states, from (K, D) A and (T, K) rows of B."""
        return self.scale * (hidden @ down.T) @ rows.T

    def _rows_of_ids(self) -> Tensor:
        """(m, K) rows of B."""
        rows = self.up.detach()[self.ids]
        if self.rows is None:
            return rows
        trained = torch.tensor(self.trained, dtype=torch.long, device=self.ids.device)
        return rows.index_copy(0, self._place_of[trained], self.rows)

    def among(self, ids: Tensor) -> Tensor:
        """Places of tokens among those that move."""
        return self._place_of[ids]


class WholeEncoded(Encoded):
    """Hidden states whose logits are computed whole, for replies that are not of the admissible form."""

    def __init__(self, head: NarrowHead, hidden: Tensor) -> None:
        super().__init__(head, hidden)  # type: ignore[arg-type]
        self.narrow = head

    def logits_at(self, rows: Tensor, columns: Tensor) -> Tensor:
        """(N, V) logits at N positions, in fp32."""
        return self.narrow.logits(self.hidden[rows, columns]).float()


class NarrowEncoded(Encoded):
    """Hidden states with what is kept of their logits."""

    def __init__(self, head: NarrowHead, hidden: Tensor, moved: Tensor, others: Tensor) -> None:
        super().__init__(head, hidden, moved, others)  # type: ignore[arg-type]
        self.narrow = head
        self.moved = moved
        """(B, T, m) base logits of the tokens that move."""
        self.others = others
        """(B, T, 2): the log of the sum of the others' exponentials, and their mean under their own softmax."""

    def logits_at(self, rows: Tensor, columns: Tensor) -> Tensor:
        """(N, V) logits at N positions, in fp32."""
        return self.narrow.logits(self.hidden[rows, columns]).float()

    def scorer_at(self, rows: Tensor, columns: Tensor, temperature: float) -> Scorer:
        """Scores tokens at S positions; only such as may move, and only at the temperature at which these were kept."""
        assert temperature == self.narrow.temperature, "kept at another temperature"
        logits = self.narrow.moved_logits(self.hidden[rows, columns], self.moved[rows, columns])
        total_of_others, mean_of_others = self.others[rows, columns].unbind(-1)
        total = torch.logaddexp(
            logits.logsumexp(-1), total_of_others
        )  # (S,) log of the softmax's denominator
        logprobs = logits - total[:, None]  # (S, m)

        def score(places: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
            # H = -sum p log p = log Z - sum p logit, over the tokens that move and, as one, over the others.
            share = (total_of_others - total).exp()
            entropy = total - (logprobs.exp() * logits).sum(-1) - share * mean_of_others
            return logprobs[places, self.narrow.among(ids)], entropy.detach()

        return score

    def draw(
        self, rows: Tensor, columns: Tensor, uniform: Tensor, *, greedy: bool
    ) -> tuple[Tensor, Tensor]:
        """A token at each of N positions, and its log-probability.

        Args:
            rows: (N,).
            columns: (N,).
            uniform: (N,) numbers drawn from [0, 1).
            greedy: take the most probable token.
        """
        hidden = self.hidden[rows, columns]
        logits = self.narrow.moved_logits(hidden, self.moved[rows, columns])
        total_of_others = self.others[rows, columns, 0]
        total = torch.logaddexp(logits.logsumexp(-1), total_of_others)
        logprobs = logits - total[:, None]
        # The tokens that move come first in the distribution function, all others behind them.
        function = logprobs.exp().double().cumsum(-1)
        found = torch.searchsorted(function, uniform[:, None].double(), right=True).squeeze(-1)
        is_other = found == logits.shape[-1]
        if greedy:
            # An other token may be the likeliest of all only if together they have more than the likeliest that moves.
            best, found = logprobs.max(-1)
            is_other = total_of_others - total > best
        found = found.clamp(max=logits.shape[-1] - 1)
        tokens = self.narrow.ids[found]
        chosen = logprobs.gather(1, found[:, None]).squeeze(1)
        if is_other.any():
            where = is_other.nonzero().squeeze(1)
            whole = (
                self.narrow.logits(hidden[where]).float() / self.narrow.temperature
            ).log_softmax(-1)
            if greedy:
                chosen[where], tokens[where] = whole.max(-1)
            else:
                own = whole.index_fill(1, self.narrow.ids, float("-inf"))
                left = uniform[where].double() - function[where, -1]
                rest = own.exp().double().cumsum(-1)
                drawn = torch.searchsorted(rest, left[:, None], right=True).clamp(
                    max=rest.shape[-1] - 1
                )
                tokens[where] = drawn.squeeze(1)
                chosen[where] = whole.gather(1, drawn).squeeze(1)
        return tokens, chosen
