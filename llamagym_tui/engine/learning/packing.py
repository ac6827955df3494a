"""From segments to tensors: minibatches drawn at random, then packed into trees only for compute.

The textbook pads the rows of a minibatch to one length and computes them. Here, what segments have in common at their
beginning is computed once (`llamagym_tui.engine.tokens.token_tree`), and every forward is of trees of similar size.
It goes in four steps: `minibatches` draws rows, `pack_into_trees` puts rows that begin alike on one tree,
`group_by_size` makes forwards of trees, and `collate` notes where on the trees the policy decided. `forwards` is the
last three. No step changes a result.

Notation: S places whose logits are needed, N scored tokens, D decisions, K turns, M branches, A admissible tokens or
replies.
"""

import math
import random
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from typing import NamedTuple

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
from llamagym_tui.engine.tokens.token_tree import TokenTree, TreeRows, padded, tree_rows
from llamagym_tui.engine.tokens.tokenization import ChatTokenizer

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
    """A tree, the rows that are on it, and where."""

    tree: TokenTree
    rows: list[Row] = field(default_factory=list)
    paths: list[list[list[int]]] = field(default_factory=list)
    """For each row: the columns of its ids, then of each admissible reply of its choices."""
    scored: int = 0
    """Tokens on it that are scored."""


class Units(NamedTuple):
    """U turns or decisions: sampled tokens, or choices among replies."""

    indices: Tensor
    """(U,) index of each in the batch."""
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
    branch_tokens: Tensor
    """(M,) index into the N tokens."""
    branch_children: Tensor
    """(M, A) admissible ids, -1 where there are fewer."""
    choices: Choices | None
    """How tokens make up choices; None: each token is a decision of its own."""

    def encode(self, backbone: Backbone) -> Encoded:
        """A forward of the trees; hidden states are whole only in columns from which something is read."""
        is_read = torch.zeros_like(self.trees.ids, dtype=torch.bool)
        is_read[self.place_rows, self.place_columns] = True
        is_read[self.turns.rows, self.turns.columns] = True
        return backbone.encode_trees(self.prefix, self.trees, is_read)

    def credited(self, credit: Credit) -> Units:
        """What values and advantages belong to: turns or decisions."""
        return self.turns if credit == "turn" else self.decisions

    def credited_to(self, credit: Credit) -> Tensor:
        """(D,) index in the batch of the turn whose advantage each decision has, or the decision's own."""
        return self.decision_turns if credit == "turn" else self.decisions.indices

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

    def reply_logprobs(self, encoded: Encoded, temperature: float, vocabulary: int) -> Tensor:
        """(K, A) log-probability of each reply that could be chosen; logits once a place, in bounded pieces."""
        assert self.choices is not None
        logprobs = torch.empty(len(self.token_ids), device=self.token_ids.device)  # (N,)
        piece = max(1, LOGITS_AT_ONCE // vocabulary)
        for start in range(0, len(self.place_rows), piece):
            places = slice(start, start + piece)
            logits = encoded.logits_at(self.place_rows[places], self.place_columns[places])
            of_vocabulary = (logits / temperature).log_softmax(-1)  # (piece, V)
            is_here = (self.token_places >= start) & (self.token_places < start + piece)  # (N,)
            logprobs[is_here] = of_vocabulary[
                self.token_places[is_here] - start, self.token_ids[is_here]
            ]
        return reply_sums(logprobs, self.choices)


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
    """What each of several ranks or threads computes: about as many distinct and scored tokens, of neighbours."""
    if count == 1:
        return [rows]
    # In order of their ids, those that begin alike are mostly in one part, and meet on one tree there.
    ordered = sorted(rows, key=lambda row: (row.segment.prefix, row.segment.ids))
    # The work of the first 0, 1, 2, ... rows: what a row does not share with its neighbour, and what is scored of it.
    work = [0]
    before: list[int] = []
    for row in ordered:
        ids = row.segment.ids
        own = len(ids) - _shared_length(before, ids)
        work.append(work[-1] + own + _scored_tokens(row.segment))
        before = ids
    # Each part ends where its share of the work is reached.
    bounds = [bisect_left(work, work[-1] * part / count) for part in range(count)]
    bounds.append(len(ordered))
    return [ordered[start:end] for start, end in pairwise(bounds)]


def minibatches(
    rows: Sequence[Row], turns: int, rng: random.Random, *, by_prompt: bool = False
) -> Iterator[list[Row]]:
    """Rows in random order, in parts of about equal size and of about `turns` turns.

    With `by_prompt` rows that begin with equal prompts are in one part, so that an epoch computes each prompt once.
    """
    # Whole segments are drawn and not single turns: the turns of a segment share its forward.
    drawn: dict[object, list[Row]] = {}
    for row in rows:
        alike: object = id(row)
        if by_prompt:
            segment = row.segment
            alike = (segment.prefix, *segment.ids[: segment.turns[0].start])
        drawn.setdefault(alike, []).append(row)
    order = list(drawn.values())
    rng.shuffle(order)
    total = sum(len(row.segment.turns) for row in rows)
    parts = max(1, round(total / turns))
    part: list[Row] = []
    seen = 0  # turns
    made = 0  # parts
    for together in order:
        part += together
        seen += sum(len(row.segment.turns) for row in together)
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
    """Rows as few forwards: one prefix each, what rows share computed once, trees of similar size together.

    Packing changes no result: a minibatch was drawn before it, and rows without a trained turn give nothing. One tree
    may have more tokens than the limit, and one row more that are scored.
    """
    # A forward has one prefix, and either tokens that were sampled or replies that were chosen by score.
    by_kind: dict[tuple[tuple[int, ...], bool], list[Row]] = {}
    for row in rows:
        trained = [turn for turn in row.segment.turns if turn.is_trained]
        if trained:
            is_chosen = trained[0].choice is not None
            by_kind.setdefault((row.segment.prefix, is_chosen), []).append(row)
    # A flat forward has no padding, so a tree of it may be as large as the forward.
    columns = limits.tokens if limits.flat else None
    for (prefix, is_chosen), alike in by_kind.items():
        trees = pack_into_trees(alike, limits.scored, columns=columns)
        for group in group_by_size(trees, limits):
            yield collate(prefix, group, device, is_chosen=is_chosen)


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
        row_scored = _scored_tokens(row.segment)
        is_known = sequences == before  # then it adds no column to the last tree
        before = sequences
        last = packed[-1] if packed else None
        if (
            last is None
            or last.scored + row_scored > scored
            or not (is_known or last.tree.takes(sequences[0], columns))
        ):
            last = PackedTree(TokenTree())
            packed.append(last)
            is_known = False
        if is_known:
            paths = last.paths[-1]
        else:
            paths = [last.tree.insert(sequence) for sequence in sequences]
        last.rows.append(row)
        last.paths.append(paths)
        last.scored += row_scored
    return packed


def group_by_size(
    packed: Iterable[PackedTree], limits: ForwardLimits
) -> Iterator[list[PackedTree]]:
    """Trees of similar size, or of few columns in all, up to the limits of one forward; one tree may have more."""
    group: list[PackedTree] = []
    for each in sorted(packed, key=lambda each: -len(each.tree)):
        if group:
            # All trees of a forward have as many columns as its first and largest, padding included.
            widest = len(group[0].tree)
            columns = widest * (len(group) + 1)
            scored = sum(other.scored for other in group) + each.scored
            is_padding_dear = widest > SLACK * len(each.tree) + 4 and columns > SMALL_FORWARD
            if is_padding_dear or columns > limits.tokens or scored > limits.scored:
                yield group
                group = []
        group.append(each)
    if group:
        yield group


def collate(
    prefix: tuple[int, ...], packed: Sequence[PackedTree], device: torch.device, *, is_chosen: bool
) -> PackedRows:
    """Tensors of trees that stand after one prefix; turns that are not trained give no decisions and no values."""
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
    decision_trees: list[int] = []
    decision_columns: list[int] = []
    old_logprobs: list[float] = []

    def score_token(tree: int, column: int, token: int) -> None:
        """Have a token scored by the logits of the column before its own; rows that share the column share these."""
        token_places.append(places.setdefault((tree, column), len(places)))
        token_ids.append(token)

    def add_decision(index: int, turn: int, tree: int, column: int) -> None:
        decision_indices.append(index)
        decision_turns.append(turn)
        decision_trees.append(tree)
        decision_columns.append(column)

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
                if turn.choice is None:
                    # Each sampled token is a decision.
                    for branch in turn.branches:
                        branch_tokens.append(len(token_ids) + branch.at)
                        branch_children.append(branch.children)
                    for decision, at in enumerate(range(turn.start, turn.end), first_decision):
                        column = path[at - 1]
                        score_token(tree, column, ids[at])
                        add_decision(decision, batch_turn, tree, column)
                else:
                    # The turn is one decision, for which the tokens of every admissible reply are scored.
                    for candidate, reply in enumerate(turn.choice.replies):
                        reply_path = next(reply_paths)
                        for at, token in enumerate(reply, start=turn.start):
                            score_token(tree, reply_path[at - 1], token)
                            token_replies.append((len(choices), candidate))
                    add_decision(first_decision, batch_turn, tree, before_reply)
                    choices.append(turn.choice)

    most_children = max((len(children) for children in branch_children), default=1)
    children = [padded(each, most_children, -1) for each in branch_children]

    def integers(values: Sequence[object]) -> Tensor:
        return torch.tensor(values, dtype=torch.long, device=device)

    return PackedRows(
        prefix=prefix,
        trees=tree_rows([each.tree for each in packed], device),
        place_rows=integers([tree for tree, _ in places]),
        place_columns=integers([column for _, column in places]),
        token_places=integers(token_places),
        token_ids=integers(token_ids),
        turns=Units(integers(turn_indices), integers(turn_trees), integers(turn_columns)),
        decisions=Units(
            integers(decision_indices), integers(decision_trees), integers(decision_columns)
        ),
        decision_turns=integers(decision_turns),
        old_logprobs=torch.tensor(old_logprobs, dtype=torch.float32, device=device),
        branch_tokens=integers(branch_tokens),
        branch_children=integers(children).reshape(len(children), most_children),
        choices=collated_choices(choices, token_replies, device) if is_chosen else None,
    )


def _shared_length(one: Sequence[int], other: Sequence[int]) -> int:
    """How many ids two sequences have in common at their beginning."""
    for at, (id_of_one, id_of_other) in enumerate(zip(one, other, strict=False)):
        if id_of_one != id_of_other:
            return at
    return min(len(one), len(other))


def _scored_tokens(segment: Segment) -> int:
    """Tokens of a segment whose log-probability is needed: those sampled, or those of all admissible replies."""
    count = 0
    for turn in segment.turns:
        if not turn.is_trained:
            continue
        if turn.choice is None:
            count += len(turn.logprobs)
        else:
            count += sum(len(reply) for reply in turn.choice.replies)
    return count


def _sequences(segment: Segment) -> list[list[int]]:
    """What must be computed of a segment: its ids up to the last decision, and every admissible reply of its choices.

    The last id of a reply is predicted, but nothing is predicted from it.
    """
    trained = [turn for turn in segment.turns if turn.is_trained]
    last = max(turn.end - 1 for turn in trained)
    sequences = [segment.ids[:last]]
    for turn in trained:
        if turn.choice is not None:
            prompt = segment.ids[: turn.start]
            sequences += [[*prompt, *reply[:-1]] for reply in turn.choice.replies]
    return sequences


def observation_ids(chat: ChatTokenizer, segment: Segment) -> Iterator[tuple[int, ...]]:
    """Ids of each turn's observation; of a prompt that repeats earlier turns, all after its prefix."""
    end = 0
    for turn in segment.turns:
        ids = segment.ids[end : turn.start]
        template: Sequence[int] = ()
        if end:
            template = chat.continuation("", ended=segment.ids[end - 1] == chat.end_ids[0])
        # What the template writes before an observation is not part of it.
        same = takewhile(lambda pair: pair[0] == pair[1], zip(ids, template, strict=False))
        yield tuple(ids[len(list(same)) :])
        end = turn.end
