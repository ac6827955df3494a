"""From segments to tensors: minibatches drawn at random, then packed into trees only for compute.

What segments have in common at their beginning is computed once (`llamagym_tui.engine.tokens.token_tree`), and every
forward is of trees of similar size. Notation: S places whose logits are needed, N scored tokens, D decisions, K turns,
M branches, A admissible tokens or replies.
"""

import math
import random
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from llamagym_tui.config import Credit
from llamagym_tui.engine.model.forward import Backbone, Encoded
from llamagym_tui.engine.model.shape import ForwardLimits
from llamagym_tui.engine.policy.decisions import (
    Choices,
    Decisions,
    collated_choices,
    reply_decisions,
    reply_sums,
    token_decisions,
)
from llamagym_tui.engine.policy.trajectory import Choice, Segment, Trajectory
from llamagym_tui.engine.tokens.token_tree import TokenTree, TreeRows, tree_rows

SMALL_FORWARD = 512
"""Columns up to which padding costs less than another forward, with its prefix."""
SLACK = 1.25
"""Columns of the largest tree of a larger forward over those of its smallest, at most."""
LOGITS_AT_ONCE = 2**25
"""Numbers in the logits of replies that are only scored at most, in one piece."""


@dataclass(frozen=True, slots=True)
class Row:
    """A segment, and where its turns and decisions stand in the batch."""

    segment: Segment
    first_turn: int
    """Index in the batch of the segment's first turn."""
    first_decision: int = 0
    """Index in the batch of the segment's first decision; a turn that someone else chose counts as one."""


@dataclass(slots=True)
class PackedTree:
    tree: TokenTree
    rows: list[Row] = field(default_factory=list)
    paths: list[list[list[int]]] = field(default_factory=list)
    """Of each row: the columns of its ids, then of each admissible reply of its choices."""
    scored: int = 0
    """Tokens on it that are scored."""


class Units(NamedTuple):
    """U turns or decisions: sampled tokens, or choices among replies."""

    indices: Tensor
    """(U,) of each in the batch."""
    rows: Tensor
    """(U,) tree of each."""
    columns: Tensor
    """(U,) column of the last token before it, where V is read."""


@dataclass(frozen=True, slots=True)
class PackedRows:
    """Segments with one prefix as the trees of one forward, and where in it the policy decided."""

    prefix: tuple[int, ...]
    trees: TreeRows
    place_rows: Tensor
    """(S,) tree of each place whose logits are needed."""
    place_columns: Tensor
    """(S,) its column."""
    token_places: Tensor
    """(N,) place that predicts each token that is scored: the column before its own."""
    token_ids: Tensor
    """(N,)."""
    turns: Units
    decisions: Units
    decision_turns: Tensor
    """(D,) index in the batch of the turn of each decision."""
    old_logprobs: Tensor
    """(D,) when sampled."""
    weights: Tensor
    """(D,) in the policy's loss."""
    branch_tokens: Tensor
    """(M,) index into the N tokens."""
    branch_children: Tensor
    """(M, A) admissible ids, -1 where there are fewer."""
    choices: Choices | None
    """How tokens make up choices; None: each token is a decision of its own."""

    def encode(self, backbone: Backbone) -> Encoded:
        read = torch.zeros_like(self.trees.ids, dtype=torch.bool)
        read[self.place_rows, self.place_columns] = True
        read[self.turns.rows, self.turns.columns] = True
        return backbone.encode_trees(self.prefix, self.trees, read)

    def credited(self, credit: Credit) -> tuple[Units, Tensor]:
        """What values and advantages belong to, turns or decisions, and (D,) index in the batch of each decision's."""
        return (
            (self.turns, self.decision_turns)
            if credit == "turn"
            else (self.decisions, self.decisions.indices)
        )

    def score(self, encoded: Encoded, temperature: float) -> Decisions:
        """Log-probability and entropy of each decision under the model that encoded the rows."""
        tokens = (
            encoded.logits_at(self.place_rows, self.place_columns),
            self.token_places,
            self.token_ids,
        )
        if self.choices is None:
            return token_decisions(*tokens, self.branch_tokens, self.branch_children, temperature)
        return reply_decisions(*tokens, self.choices, temperature)

    def reply_logprobs(self, encoded: Encoded, temperature: float, vocabulary: int) -> Tensor:
        """(K, A) log-probability of each reply that could be chosen; logits once a place, in bounded pieces."""
        assert self.choices is not None
        logprobs = torch.empty(len(self.token_ids), device=self.token_ids.device)
        piece = max(1, LOGITS_AT_ONCE // vocabulary)
        for start in range(0, len(self.place_rows), piece):
            some = slice(start, start + piece)
            logits = encoded.logits_at(self.place_rows[some], self.place_columns[some])
            here = (self.token_places >= start) & (self.token_places < start + piece)
            each = (logits / temperature).log_softmax(-1)
            logprobs[here] = each[self.token_places[here] - start, self.token_ids[here]]
        return reply_sums(logprobs, self.choices)


def batch_rows(trajectories: Sequence[Trajectory]) -> list[Row]:
    rows, turns, decisions = [], 0, 0
    for trajectory in trajectories:
        for segment in trajectory.segments:
            rows.append(Row(segment, turns, decisions))
            turns += len(segment.turns)
            decisions += sum(len(turn.decision_logprobs) for turn in segment.turns)
    return rows


def parts_of(rows: Sequence[Row], count: int) -> list[Sequence[Row]]:
    """What each of several ranks or threads computes: about as many distinct and scored tokens, of neighbours."""
    if count == 1:
        return [rows]
    # In order of their ids, those that begin alike are mostly in one part, and meet on one tree there.
    ordered = sorted(rows, key=lambda row: (row.segment.prefix, row.segment.ids))
    work, before = [0], list[int]()
    for row in ordered:
        ids = row.segment.ids
        pairs = enumerate(zip(before, ids, strict=False))
        shared = next(
            (at for at, (one, other) in pairs if one != other), min(len(before), len(ids))
        )
        work.append(work[-1] + len(ids) - shared + _scored_tokens(row.segment))
        before = ids
    ends = [bisect_left(work, work[-1] * part / count) for part in range(count)]
    return [ordered[start:end] for start, end in pairwise([*ends, len(ordered)])]


def minibatches(rows: Sequence[Row], turns: int, rng: random.Random) -> Iterator[list[Row]]:
    """Rows in random order, in parts of about equal size and of about `turns` turns."""
    # Whole segments are drawn and not single turns: the turns of a segment share its forward.
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


def forwards(
    rows: Iterable[Row], limits: ForwardLimits, device: torch.device
) -> Iterator[PackedRows]:
    """Rows as few forwards: one prefix each, what rows share computed once, trees of similar size together.

    Packing changes no result: a minibatch was drawn before it, and rows without a trained turn give nothing. One tree
    may have more tokens than the limit, and one row more that are scored.
    """
    by_kind: dict[tuple[tuple[int, ...], bool], list[Row]] = {}
    for row in rows:
        trained = [turn for turn in row.segment.turns if turn.is_trained]
        if trained:
            by_kind.setdefault((row.segment.prefix, trained[0].choice is not None), []).append(row)
    for (prefix, is_chosen), alike in by_kind.items():
        trees = pack_into_trees(
            alike, limits.scored, columns=limits.tokens if limits.flat else None
        )
        for packed in group_by_size(trees, limits):
            yield collate(prefix, packed, device, is_chosen=is_chosen)


def pack_into_trees(
    rows: Iterable[Row], scored: float = math.inf, *, columns: int | None = None
) -> list[PackedTree]:
    """Rows of one prefix on trees of at most `scored` scored tokens and of `columns` (one row may have more).

    Without `columns`, only rows that are cheaper so are on one tree.
    """
    packed: list[PackedTree] = []
    before: list[list[int]] = []
    # In order of their ids, those that begin alike are neighbours and meet on one tree.
    for row in sorted(rows, key=lambda row: row.segment.ids):
        sequences = _sequences(row.segment)
        more = _scored_tokens(row.segment)
        is_known = sequences == before
        if (
            not packed
            or not (is_known or packed[-1].tree.takes(sequences[0], columns))
            or packed[-1].scored + more > scored
        ):
            packed.append(PackedTree(TokenTree()))
            is_known = False
        last = packed[-1]
        last.scored += more
        last.rows.append(row)
        last.paths.append(
            last.paths[-1] if is_known else [last.tree.insert(sequence) for sequence in sequences]
        )
        before = sequences
    return packed


def group_by_size(
    packed: Iterable[PackedTree], limits: ForwardLimits
) -> Iterator[list[PackedTree]]:
    """Trees of similar size, or of few columns in all, up to the limits of one forward; one tree may have more."""
    group: list[PackedTree] = []
    for each in sorted(packed, key=lambda each: -len(each.tree)):
        if group and (
            (
                len(group[0].tree) > SLACK * len(each.tree) + 4
                and len(group[0].tree) * (len(group) + 1) > SMALL_FORWARD
            )
            or len(group[0].tree) * (len(group) + 1) > limits.tokens
            or sum(other.scored for other in group) + each.scored > limits.scored
        ):
            yield group
            group = []
        group.append(each)
    if group:
        yield group


def collate(
    prefix: tuple[int, ...], packed: Sequence[PackedTree], device: torch.device, *, is_chosen: bool
) -> PackedRows:
    """Tensors of trees that stand after one prefix; turns that are not trained give no decisions and no values."""
    places: dict[tuple[int, int], int] = {}
    tokens: list[tuple[int, int]] = []
    decisions: list[tuple[int, int, int, int]] = []
    old_logprobs: list[float] = []
    weights: list[float] = []
    branches: list[tuple[int, tuple[int, ...]]] = []
    turns: list[tuple[int, int, int]] = []
    choices: list[Choice] = []
    token_replies: list[tuple[int, int]] = []
    for index, each in enumerate(packed):
        for row, paths in zip(each.rows, each.paths, strict=True):
            alternatives = iter(paths[1:])
            first = row.first_decision
            for number, turn in enumerate(row.segment.turns):
                decision, first = first, first + len(turn.decision_logprobs)
                if not turn.is_trained:
                    continue
                weights += turn.weights or [1.0] * len(turn.decision_logprobs)
                batch_turn = row.first_turn + number
                turns.append((index, paths[0][turn.start - 1], batch_turn))
                if turn.choice is None:
                    branches += [
                        (len(tokens) + branch.at, branch.children) for branch in turn.branches
                    ]
                    old_logprobs += turn.logprobs
                    for at in range(turn.start, turn.end):
                        place = places.setdefault((index, paths[0][at - 1]), len(places))
                        tokens.append((place, row.segment.ids[at]))
                        decisions.append(
                            (decision + at - turn.start, batch_turn, index, paths[0][at - 1])
                        )
                    continue
                for candidate, reply in enumerate(turn.choice.replies):
                    path = next(alternatives)
                    for at, token in enumerate(reply):
                        tokens.append(
                            (
                                places.setdefault((index, path[turn.start + at - 1]), len(places)),
                                token,
                            )
                        )
                        token_replies.append((len(choices), candidate))
                decisions.append((decision, batch_turn, index, paths[0][turn.start - 1]))
                old_logprobs.append(turn.choice.logprob)
                choices.append(turn.choice)
    widest = max((len(children) for _, children in branches), default=1)
    padded = [list(children) + [-1] * (widest - len(children)) for _, children in branches]

    def column(values: Sequence[tuple[Any, ...]], at: int) -> Tensor:
        return torch.tensor([value[at] for value in values], dtype=torch.long, device=device)

    return PackedRows(
        prefix=prefix,
        trees=tree_rows([each.tree for each in packed], device),
        place_rows=column(list(places), 0),
        place_columns=column(list(places), 1),
        token_places=column(tokens, 0),
        token_ids=column(tokens, 1),
        turns=Units(column(turns, 2), column(turns, 0), column(turns, 1)),
        decisions=Units(column(decisions, 0), column(decisions, 2), column(decisions, 3)),
        decision_turns=column(decisions, 1),
        old_logprobs=torch.tensor(old_logprobs, dtype=torch.float32, device=device),
        weights=torch.tensor(weights, dtype=torch.float32, device=device),
        branch_tokens=column(branches, 0),
        branch_children=torch.tensor(padded, dtype=torch.long, device=device).reshape(
            len(padded), widest
        ),
        choices=collated_choices(choices, token_replies, device) if is_chosen else None,
    )


def _scored_tokens(segment: Segment) -> int:
    return sum(
        turn.end - turn.start if turn.choice is None else sum(map(len, turn.choice.replies))
        for turn in segment.turns
        if turn.is_trained
    )


def _sequences(segment: Segment) -> list[list[int]]:
    """What must be computed of a segment: its ids up to the last decision, and every admissible reply of its choices.

    The last id of a reply is predicted, but nothing is predicted from it.
    """
    trained = [turn for turn in segment.turns if turn.is_trained]
    main = segment.ids[: max(turn.end - 1 for turn in trained)]
    replies = [
        [*segment.ids[: turn.start], *reply[:-1]]
        for turn in trained
        if turn.choice is not None
        for reply in turn.choice.replies
    ]
    return [main, *replies]
