"""Lessons as tokens: conversations under one system prompt are one row, each attending to the prompt and to itself.

Positions go on from the prompt; padding at the ends is neither attended to nor trained on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from llamagym_tui.engine.tokens.tokenization import ChatTokenizer
from scripts.bundled_model.lessons import Lesson, Mark


@dataclass
class Batch:
    """B lessons, each a row of T = P + G * C tokens: a prefix of P and G conversations of C, padded at their ends."""

    ids: Tensor
    """(B, T)."""
    positions: Tensor
    """(B, T)."""
    prefix: int
    """P."""
    mask: Tensor
    """(B * G, 1, C, P + C) additive: what a conversation's token attends to, prefix and itself."""
    targets: Tensor
    """(B, T) next token where it is a reply's, else -100."""
    values: list[tuple[int, int, tuple[int, ...]]]
    """(row, column, tokens) of each last prompt token: what its observation says."""
    hints: list[tuple[int, int, tuple[int, ...]]]
    """(row, column, tokens) of replies' first tokens: what following the instruction takes, -1 for nothing."""
    marks: list[tuple[int, int, tuple[int, ...]]]
    """(row, column, tokens) of observations' numbers: whether the instruction is about them, and what they decide."""


class Row(NamedTuple):
    """A lesson in tokens."""

    prefix: list[int]
    conversations: list[list[int]]
    targets: list[list[int]]
    values: list[list[tuple[int, tuple[int, ...]]]]
    hints: list[list[tuple[int, tuple[int, ...]]]]
    marks: list[list[tuple[int, tuple[int, ...]]]]
    own_marks: list[tuple[int, tuple[int, ...]]]
    """Those in the prefix."""


def pack(rows: list[Row]) -> Batch:
    prefix = max(len(row.prefix) for row in rows)
    own = max(len(ids) for row in rows for ids in row.conversations)
    groups = len(rows[0].conversations)
    shape = (len(rows), prefix + groups * own)
    ids, positions = (torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.long))
    targets = torch.full(shape, -100)
    positions[:, :prefix] = torch.arange(prefix)
    hidden = torch.full((len(rows), groups, own, prefix + own), float("-inf"))
    hidden[..., prefix:] = hidden[..., prefix:].triu(1)
    values, hints, marks = [], [], []
    for index, row in enumerate(rows):
        length = len(row.prefix)
        ids[index, :length] = torch.tensor(row.prefix)
        hidden[index, ..., :length] = 0
        marks += [(index, at, tokens) for at, tokens in row.own_marks]
        for group, (mine, wanted, read, followed, marked) in enumerate(
            zip(row.conversations, row.targets, row.values, row.hints, row.marks, strict=True)
        ):
            start = prefix + group * own
            ids[index, start : start + len(mine)] = torch.tensor(mine)
            targets[index, start : start + len(mine)] = torch.tensor(wanted)
            positions[index, start : start + own] = torch.arange(length, length + own)
            values += [(index, start + at, tokens) for at, tokens in read]
            hints += [(index, start + at, tokens) for at, tokens in followed]
            marks += [(index, start + at, tokens) for at, tokens in marked]
    return Batch(
        ids, positions, prefix, hidden.flatten(0, 1)[:, None], targets, values, hints, marks
    )


def in_tokens(lesson: Lesson, chat: ChatTokenizer) -> Row:
    row = Row(
        list(chat.opening(lesson.system_prompt, lesson.conversations[0][0].observation).prefix),
        [],
        [],
        [],
        [],
        [],
        [],
    )
    row.own_marks.extend(_marked(chat, lesson.system_prompt, lesson.marks, row.prefix))
    for exchanges in lesson.conversations:
        ids: list[int] = []
        targets: list[int] = []
        values, hints, marks = [], [], []
        for turn, exchange in enumerate(exchanges):
            began = len(ids)
            if turn == 0:
                ids += chat.opening(lesson.system_prompt, exchange.observation).rest
            else:
                ids += chat.continuation(exchange.observation, ended=True)
            if exchange.values:
                values.append(
                    (
                        len(ids) - 1,
                        tuple(chat.tokenizer.encode(f" {each}")[0] for each in exchange.values),
                    )
                )
            marks += _marked(chat, exchange.observation, exchange.marks, ids, began)
            if exchange.hints:
                hints.append((len(ids), tuple(_token(chat, each) for each in exchange.hints)))
            reply = chat.reply_ids(exchange.reply)
            targets += [-100] * (len(ids) - len(targets) - 1) + list(reply)
            ids += reply
        targets.append(-100)
        row.conversations.append(ids)
        row.targets.append(targets)
        row.values.append(values)
        row.hints.append(hints)
        row.marks.append(marks)
    return row


def _marked(
    chat: ChatTokenizer, text: str, marks: Sequence[Mark], ids: Sequence[int], start: int = 0
) -> list[tuple[int, tuple[int, ...]]]:
    """Columns of marked words, behind `start`, where the text's tokens stand among `ids`."""
    if not marks:
        return []
    encoded = chat.tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
    tokens = encoded["input_ids"]
    begins = next(at for at in range(start, len(ids)) if list(ids[at : at + len(tokens)]) == tokens)
    ends = [end for _, end in encoded["offset_mapping"]]
    return [
        (begins + bisect_right(ends, mark.at), tuple(_token(chat, each) for each in mark[1:]))
        for mark in marks
    ]


@cache
def _token(chat: ChatTokenizer, word: str) -> int:
    return int(chat.tokenizer.encode(f" {word}")[0]) if word else -1


def batches(lessons: list[Lesson], chat: ChatTokenizer, parts: int) -> list[Batch]:
    """Rows of similar length together: half of a batch of all would be padding."""
    rows = sorted(
        (in_tokens(lesson, chat) for lesson in lessons),
        key=lambda row: max(map(len, row.conversations)),
    )
    each = len(rows) // parts
    return [pack(rows[at : at + each]) for at in range(0, len(rows), each)]


def shared_prefix_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    batch: Batch,
    **_: object,
) -> tuple[Tensor, None]:
    """Each conversation attends to the prefix and to itself; (B, H, T, D) to (B, T, H, D)."""
    length = batch.prefix
    rows, heads, _, width = query.shape
    own = batch.mask.shape[2]
    causal = torch.full((length, length), float("-inf")).triu(1)
    of_prefix = _attend(query[:, :, :length], key[:, :, :length], value[:, :, :length], causal)

    def apart(of: Tensor) -> Tensor:
        """(B, H, G * C, D) to (B, G, H, C, D)."""
        return of[:, :, length:].unflatten(2, (-1, own)).transpose(1, 2)

    def both(of: Tensor) -> Tensor:
        mine = apart(of)
        return torch.cat(
            [of[:, None, :, :length].expand(-1, mine.shape[1], -1, -1, -1), mine], 3
        ).flatten(0, 1)

    mine = _attend(apart(query).flatten(0, 1), both(key), both(value), batch.mask)
    mine = mine.unflatten(0, (rows, -1)).transpose(2, 3).reshape(rows, -1, heads, width)
    return torch.cat([of_prefix.transpose(1, 2), mine], 1), None


def _attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """Written out: for so few keys, and in bf16, faster than the fused kernel of CPUs."""
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-1, -2)
    return torch.softmax(scores + mask, -1) @ value


AttentionInterface.register("shared_prefix", shared_prefix_attention)
