"""Auxiliary heads, dropped after training: what each word means on the way from an instruction to an action.

Without them rules that need two look-ups and a comparison stay at chance; with them they are learnt in minutes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from scripts.bundled_model.batches import Batch
from scripts.bundled_model.lessons import MOST_HINTS, MOST_VALUES, Mark

# The weights of the auxiliary heads' losses.
VALUE_WEIGHT = 0.2
HINT_WEIGHT = 1.0
MARK_WEIGHT = 1.0


class Readers(nn.Module):
    """Linear readers of hidden states, one for each place of a tuple of words; dropped after training."""

    def __init__(self, hidden: int, places: int) -> None:
        super().__init__()
        self.read = nn.ModuleList([nn.Linear(hidden, hidden, bias=False) for _ in range(places)])

    def loss(
        self, hidden: Tensor, wanted: list[tuple[int, int, tuple[int, ...]]], head: nn.Module
    ) -> Tensor:
        """() mean over places of the mean cross-entropy of (row, column, tokens); (B, T, D) hidden states."""
        losses = []
        for place, read in enumerate(self.read):
            at = [
                (row, column, tokens[place])
                for row, column, tokens in wanted
                if len(tokens) > place and tokens[place] >= 0
            ]
            if at:
                rows, columns, ids = torch.tensor(at).T
                losses.append(nn.functional.cross_entropy(head(read(hidden[rows, columns])), ids))
        return torch.stack([*losses, torch.zeros(())]).sum() / max(len(losses), 1)


class Heads(nn.Module):
    """What reads the values, hints and marks of a batch off its hidden states."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.values = Readers(hidden, MOST_VALUES)
        self.hints = Readers(hidden, MOST_HINTS)
        self.marks = Readers(hidden, len(Mark._fields) - 1)

    def loss(self, hidden: Tensor, batch: Batch, head: nn.Module) -> Tensor:
        return (
            VALUE_WEIGHT * self.values.loss(hidden, batch.values, head)
            + HINT_WEIGHT * self.hints.loss(hidden, batch.hints, head)
            + MARK_WEIGHT * self.marks.loss(hidden, batch.marks, head)
        )
