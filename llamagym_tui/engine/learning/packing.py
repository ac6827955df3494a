"""From segments to tensors: minibatches drawn at random, then packed into trees only for compute.

The textbook pads the rows of a minibatch to one length and computes them. Here, what segments have in common at their
beginning is computed once (`llamagym_tui.engine.tokens.token_tree`). `minibatches` draws rows, and `forwards` puts rows
that begin alike on one tree and notes where on it the policy decided. Packing changes no result.

Notation: S places whose logits are needed, N scored tokens, D decisions, K turns, M branches, A admissible tokens or
replies.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from llamagym_tui.engine.model.forward import Backbone, Encoded
from llamagym_tui.engine.policy.decisions import (
    Choices,
    Decisions,
    collated_choices,
    reply_decisions,
    token_decisions,
)
from llamagym_tui.engine.policy.trajectory import Choice, Segment, Trajectory
from llamagym_tui.engine.tokens.token_tree import ForwardLimits, TokenTree, grouped, padded


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
    """A tree, the rows that are on it, and where."""

    tree: TokenTree
    rows: list[Row] = field(default_factory=list)
    paths: list[list[list[int]]] = field(default_factory=list)
    """For each row: the columns of its ids, then of each admissible reply of its choices."""


class PackedTurns(NamedTuple):
    """U turns that are trained."""

    indices: Tensor
    """(U,) index of each in the batch."""
    rows: Tensor
    """(U,) tree of each."""
    columns: Tensor
    """(U,) column of the last token before it, where V is read."""


@dataclass(frozen=True, slots=True)
class PackedRows:
    """Segments with one prefix as the trees of one forward, and where in it the policy decided."""

    trees: Sequence[TokenTree]
    """One for a forward; one for each prompt where the states are remembered."""
    place_rows: Tensor
    """(S,) tree of each place whose logits are needed."""
    place_columns: Tensor
    """(S,) its column."""
    token_places: Tensor
    """(N,) place that predicts each token that is scored: the column before its own."""
    token_ids: Tensor
    """(N,)."""
    turns: PackedTurns
    decision_indices: Tensor
    """(D,) index of each decision in the batch."""
    decision_turns: Tensor
    """(D,) index in the batch of the turn of each decision."""
    old_logprobs: Tensor
    """(D,) when sampled."""
    branch_tokens: Tensor
    """(M,) index into the N tokens."""
    branch_children: Tensor
    """(M, A) admissible ids, -1 where there are fewer."""
    choices: Choices | None
    """The choices that tokens make up. None: each token is a decision of its own."""
    wording: int = 0
    """The number of the wording of all prompts, where the states are remembered."""

    def encode(self, backbone: Backbone) -> Encoded:
        """A forward of the tree."""
        (tree,) = self.trees
        read = torch.cat([self.place_columns, self.turns.columns])
        return backbone.encode_tree(tree, read.tolist())

    def score(self, encoded: Encoded, temperature: float) -> Decisions:
        """Log-probability and entropy of each decision under the model that encoded the rows."""
        # Temperature divides the logits of tokens that are sampled, and the scores of replies that are chosen.
        of_logits = temperature if self.choices is None else 1.0
        score = encoded.scorer_at(self.place_rows, self.place_columns, of_logits)
        places = self.token_places
        ids = self.token_ids
        if self.choices is None:
            return token_decisions(score, places, ids, self.branch_tokens, self.branch_children)
        return reply_decisions(score, places, ids, self.choices, temperature)


def batch_rows(trajectories: Sequence[Trajectory]) -> list[Row]:
    """The segments of a batch, each with where its turns and decisions stand in it."""
    rows: list[Row] = []
    turns = 0
    decisions = 0
    for trajectory in trajectories:
        for segment in trajectory.segments:
            rows.append(Row(segment, turns, decisions))
            turns += len(segment.turns)
            decisions += sum(len(turn.decision_logprobs) for turn in segment.turns)
    return rows


def rows_of_turns(rows: Iterable[Row]) -> Iterator[Row]:
    """A row for each turn, with all that comes before its reply as its prompt."""
    for row in rows:
        segment = row.segment
        if len(segment.turns) == 1:
            yield row
            continue
        next_decision = row.first_decision
        for number, turn in enumerate(segment.turns):
            upto = Segment(segment.prefix, segment.ids[: turn.end], [turn])
            yield Row(upto, row.first_turn + number, next_decision)
            next_decision += len(turn.decision_logprobs)


def parts_of(rows: Sequence[Row], count: int) -> list[Sequence[Row]]:
    """The rows that each of several ranks computes, neighbours that begin alike."""
    if count == 1:
        return [rows]
    ordered = sorted(rows, key=lambda row: (row.segment.prefix, row.segment.ids))
    bounds = [len(rows) * part // count for part in range(count + 1)]
    return [ordered[start:end] for start, end in pairwise(bounds)]


def minibatches(rows: Sequence[Row], turns: int, rng: random.Random) -> Iterator[list[Row]]:
    """Rows in random order, in parts of about equal size and of about `turns` turns."""
    # Whole segments are drawn and not single turns: the turns of a segment share its forward.
    order = list(rows)
    rng.shuffle(order)
    total = sum(len(row.segment.turns) for row in rows)
    parts = max(1, round(total / turns))
    part: list[Row] = []
    seen = 0  # turns
    made = 0  # parts
    for row in order:
        part.append(row)
        seen += len(row.segment.turns)
        # A part ends once it has come to its share: seen / total >= (made + 1) / parts, without a division.
        if seen * parts >= total * (made + 1):
            yield part
            part = []
            made += 1
    if part:
        yield part


def forwards(
    rows: Iterable[Row], limits: ForwardLimits, device: torch.device
) -> Iterator[PackedRows]:
    """Rows as few forwards, each of one tree; rows without a trained turn are left out."""
    # A forward has either tokens that were sampled or replies that were chosen by score.
    by_kind: dict[bool, list[Row]] = {}
    for row in rows:
        trained = [turn for turn in row.segment.turns if turn.is_trained]
        if trained:
            by_kind.setdefault(trained[0].choice is not None, []).append(row)
    for is_chosen, alike in by_kind.items():
        # In order of their ids, those that begin alike are neighbours and meet on one tree.
        alike.sort(key=lambda row: (row.segment.prefix, row.segment.ids))
        for tree, members in grouped(alike, _insert, limits, _scored_tokens):
            packed = PackedTree(tree, [row for row, _ in members], [paths for _, paths in members])
            yield collate([packed], device, is_chosen=is_chosen)


def _insert(tree: TokenTree, row: Row) -> list[list[int]]:
    """Put a row on a tree: the columns of its ids, then those of each admissible reply of its choices.

    The last id of a reply is predicted, and nothing is predicted from it.
    """
    segment = row.segment
    trained = [turn for turn in segment.turns if turn.is_trained]
    last = max(turn.end - 1 for turn in trained)
    before = len(segment.prefix)
    path = tree.insert([*segment.prefix, *segment.ids[:last]])[before:]
    paths = [path]
    for turn in trained:
        if turn.choice is not None:
            prompt = path[: turn.start]
            paths += [
                [*prompt, *tree.insert(reply[:-1], after=prompt[-1])]
                for reply in turn.choice.replies
            ]
    return paths


def collate(packed: Sequence[PackedTree], device: torch.device, *, is_chosen: bool) -> PackedRows:
    """Tensors of trees; turns that are not trained give no decisions and no values."""
    # Trees, rows and turns are gone through in order, and what is found of each is appended to these lists, which
    # become the tensors of `PackedRows` at the end.
    places: dict[tuple[int, int], int] = {}  # tree and column of each place, with the place's index
    token_places: list[int] = []
    token_ids: list[int] = []
    token_replies: list[tuple[int, int]] = []
    branch_tokens: list[int] = []
    branch_children: list[tuple[int, ...]] = []
    choices: list[Choice] = []
    turn_indices: list[int] = []
    turn_trees: list[int] = []
    turn_columns: list[int] = []
    decision_indices: list[int] = []
    decision_turns: list[int] = []
    old_logprobs: list[float] = []

    def score_token(tree: int, column: int, token: int) -> None:
        """Have a token scored by the logits of the column before its own; rows that share the column share these."""
        token_places.append(places.setdefault((tree, column), len(places)))
        token_ids.append(token)

    for tree, packed_tree in enumerate(packed):
        for row, paths in zip(packed_tree.rows, packed_tree.paths, strict=True):
            ids = row.segment.ids
            path = paths[0]  # the column of each of the ids
            reply_paths = iter(paths[1:])
            next_decision = row.first_decision
            for number, turn in enumerate(row.segment.turns):
                first_decision = next_decision
                next_decision += len(turn.decision_logprobs)
                if not turn.is_trained:
                    continue
                batch_turn = row.first_turn + number
                before_reply = path[turn.start - 1]  # the column of the prompt's last token
                turn_indices.append(batch_turn)
                turn_trees.append(tree)
                turn_columns.append(before_reply)
                old_logprobs += turn.decision_logprobs
                decision_indices += range(first_decision, next_decision)
                decision_turns += [batch_turn] * (next_decision - first_decision)
                if turn.choice is None:
                    # Each sampled token is a decision.
                    for branch in turn.branches:
                        branch_tokens.append(len(token_ids) + branch.at)
                        branch_children.append(branch.children)
                    for at in range(turn.start, turn.end):
                        score_token(tree, path[at - 1], ids[at])
                else:
                    # The turn is one decision, for which the tokens of every admissible reply are scored.
                    for candidate, reply in enumerate(turn.choice.replies):
                        reply_path = next(reply_paths)
                        for at, token in enumerate(reply, start=turn.start):
                            score_token(tree, reply_path[at - 1], token)
                            token_replies.append((len(choices), candidate))
                    choices.append(turn.choice)

    most_children = max((len(children) for children in branch_children), default=1)
    children = [padded(each, most_children, -1) for each in branch_children]

    def integers(values: Sequence[object]) -> Tensor:
        return torch.tensor(values, dtype=torch.long, device=device)

    return PackedRows(
        trees=[each.tree for each in packed],
        place_rows=integers([tree for tree, _ in places]),
        place_columns=integers([column for _, column in places]),
        token_places=integers(token_places),
        token_ids=integers(token_ids),
        turns=PackedTurns(integers(turn_indices), integers(turn_trees), integers(turn_columns)),
        decision_indices=integers(decision_indices),
        decision_turns=integers(decision_turns),
        old_logprobs=torch.tensor(old_logprobs, dtype=torch.float32, device=device),
        branch_tokens=integers(branch_tokens),
        branch_children=integers(children).reshape(len(children), most_children),
        choices=collated_choices(choices, token_replies, device) if is_chosen else None,
    )


def _scored_tokens(row: Row) -> int:
    """Tokens of a segment whose log-probability is needed: those sampled, or those of all admissible replies."""
    count = 0
    for turn in row.segment.turns:
        if not turn.is_trained:
            continue
        if turn.choice is None:
            count += len(turn.logprobs)
        else:
            count += sum(len(reply) for reply in turn.choice.replies)
    return count
