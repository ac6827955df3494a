"""From segments to tensors: minibatches drawn at random, bucketed by length only for compute.

Notation: B rows, N trained tokens, K turns, M branches, A admissible tokens at a branch.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from llamagym_tui.engine.trajectory import Segment, Trajectory


@dataclass(frozen=True, slots=True)
class Row:
    """A segment, and where its turns stand in the batch."""

    segment: Segment
    first_turn: int
    """Index in the batch of the segment's first turn."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Segments with one prefix, ready for one forward."""

    prefix: tuple[int, ...]
    ids: list[list[int]]
    token_rows: Tensor
    """(N,) row of each trained token."""
    token_columns: Tensor
    """(N,) column that predicts it: one before its own."""
    token_ids: Tensor
    """(N,)."""
    token_turns: Tensor
    """(N,) index in the batch of its turn."""
    old_logprobs: Tensor
    """(N,) when sampled."""
    turn_rows: Tensor
    """(K,) row of each turn."""
    turn_columns: Tensor
    """(K,) column of the prompt's last token, where V is read."""
    turns: Tensor
    """(K,) index of each turn in the batch."""
    branch_tokens: Tensor
    """(M,) index into the N tokens."""
    branch_children: Tensor
    """(M, A) admissible ids, -1 where there are fewer."""


def batch_rows(trajectories: Sequence[Trajectory]) -> list[Row]:
    """All segments of a batch, with turns numbered through."""
    rows, count = [], 0
    for trajectory in trajectories:
        for segment in trajectory.segments:
            rows.append(Row(segment, count))
            count += len(segment.turns)
    return rows


def minibatches(rows: Sequence[Row], turns: int, rng: random.Random) -> Iterator[list[Row]]:
    """Rows in random order, in parts of about equal size and of about `turns` turns."""
    order = list(rows)
    rng.shuffle(order)
    total = sum(len(row.segment.turns) for row in order)
    parts = max(1, round(total / turns))
    part, seen, made = [], 0, 0
    for row in order:
        part.append(row)
        seen += len(row.segment.turns)
        if seen * parts >= total * (made + 1):
            yield part
            part, made = [], made + 1
    if part:
        yield part


def buckets(rows: Sequence[Row], *, tokens: int, slack: float = 1.25) -> Iterator[list[Row]]:
    """Rows of one prefix and of similar length together.

    Args:
        rows: a minibatch.
        tokens: of a bucket at most, padding included (one row may be longer).
        slack: longest over shortest row of a bucket at most.
    """
    bucket: list[Row] = []
    for row in sorted(rows, key=lambda row: (row.segment.prefix, len(row.segment.ids))):
        if bucket and (
            row.segment.prefix != bucket[0].segment.prefix
            or len(row.segment.ids) > slack * len(bucket[0].segment.ids) + 4
            or len(row.segment.ids) * (len(bucket) + 1) > tokens
        ):
            yield bucket
            bucket = []
        bucket.append(row)
    if bucket:
        yield bucket


def collate(rows: Sequence[Row], device: torch.device) -> Rows:
    """Tensors of rows that share a prefix; turns that are not trained give neither tokens nor values."""
    tokens: list[tuple[int, int, int, int, float]] = []
    turns: list[tuple[int, int, int]] = []
    branches: list[tuple[int, tuple[int, ...]]] = []
    for index, row in enumerate(rows):
        for number, turn in enumerate(row.segment.turns):
            if not turn.is_trained:
                continue
            batch_turn = row.first_turn + number
            turns.append((index, turn.start - 1, batch_turn))
            branches += [(len(tokens) + branch.at, branch.children) for branch in turn.branches]
            for at, logprob in zip(range(turn.start, turn.end), turn.logprobs, strict=True):
                tokens.append((index, at - 1, row.segment.ids[at], batch_turn, logprob))
    widest = max((len(children) for _, children in branches), default=1)
    padded = [list(children) + [-1] * (widest - len(children)) for _, children in branches]

    def column(values: Sequence[tuple[Any, ...]], at: int) -> Tensor:
        return torch.tensor([value[at] for value in values], dtype=torch.long, device=device)

    return Rows(
        prefix=rows[0].segment.prefix,
        ids=[row.segment.ids for row in rows],
        token_rows=column(tokens, 0),
        token_columns=column(tokens, 1),
        token_ids=column(tokens, 2),
        token_turns=column(tokens, 3),
        old_logprobs=torch.tensor([token[4] for token in tokens], dtype=torch.float32, device=device),
        turn_rows=column(turns, 0),
        turn_columns=column(turns, 1),
        turns=column(turns, 2),
        branch_tokens=column(branches, 0),
        branch_children=torch.tensor(padded, dtype=torch.long, device=device).reshape(len(padded), widest),
    )
