"""A rollout as parts with labels, each wrapped into rows. Every text is literal."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from textual.content import Content

from llamagym_tui.game.actions import THOUGHT_TAG, thought_end
from llamagym_tui.protocol.literal import literal
from llamagym_tui.rollouts.repeats import common_start
from llamagym_tui.rollouts.rollout import Rollout, Token
from llamagym_tui.screens.conversation.turns import MODEL, return_text
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.state.returns import counted

LONGEST = 2_000_000
"""Characters of a text that are shown."""
STYLES = {"assistant": MODEL, "you": MODEL, "call": MODEL, "user": ""}
"""Styles of texts by their labels; the others stand aside."""
TOOLS = (
    r"(?s)<tool_call>(?P<call>.*?)(?:</tool_call>|\Z)|<tool_response>(?P<tool>.*?)(?:</tool_response>|\Z)"
    r"|.+?(?=<tool_(?:call|response)>|\Z)"
)
"""A call, or what a tool said, in a reply of verl's, or the text between them. One that is cut off has no end."""
Piece = tuple[str, Token | None]
"""A text, and the token that it is."""


class Part(NamedTuple):
    label: str
    """Who speaks, or what this is."""
    text: str
    style: str = ASIDE
    folds: bool = False
    """True if it is one line until a person unfolds it."""
    folded: str = ""
    """That line, where it is not the text."""
    tokens: Sequence[Token] = ()
    """The tokens that the text consists of, where they are to be told apart."""


class Row(NamedTuple):
    part: int
    """Index of its part."""
    pieces: list[Piece]

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.pieces)


def parts_of(rollout: Rollout, *, by_token: bool = False) -> list[Part]:
    """What a rollout consists of, from its facts to its last message.

    With `by_token`, messages that have tokens consist of them, thoughts too.
    """
    parts = []
    if facts := [shown(f"{name}: {value}") for name, value in rollout.facts]:
        parts.append(Part("fact", "\n".join(facts), folds=True, folded=" · ".join(facts)))
    for said in rollout.messages:
        if by_token and said.tokens:
            parts.append(Part(said.role, said.text, "", tokens=said.tokens))
        else:
            for each in re.finditer(TOOLS if said.role == "assistant" else "(?s).+", said.text):
                label, text = each.lastgroup or said.role, each[each.lastindex or 0]
                end = thought_end(text) if label == "assistant" else 0
                if thought := THOUGHT_TAG.sub("", text[:end]).strip():
                    parts.append(Part("thought", shown(thought), folds=True))
                if own := shown(text[end:]).strip("\n"):
                    style = STYLES.get(label, ASIDE)
                    parts.append(Part(label, own, style, folds=label in ("call", "tool")))
            parts += [Part("call", shown(call), MODEL, folds=True) for call in said.calls]
        earned, style = ("", ASIDE) if said.reward is None else return_text(said.reward)
        if words := " · ".join(filter(None, (earned, shown(said.note)))):
            parts.append(Part("reward" if earned else "", words, style))
    return parts


def shown(text: str) -> str:
    """The literal text, with spaces for tabs; a sentence stands for the end of an endless one."""
    rest = len(text) - LONGEST
    end = f"\n… {rest:,} more characters are not shown." if rest > 0 else ""
    return literal(text[:LONGEST]).expandtabs(4) + end


def rows_of(parts: Sequence[Part], unfolded: Collection[int], width: int) -> list[Row]:
    """The rows of parts for a width; a part that folds has one row unless its index is in `unfolded`."""
    rows: list[Row] = []
    for at, part in enumerate(parts):
        if part.tokens:
            rows += [Row(at, pieces) for pieces in _wrapped(part.tokens, width)]
        elif part.folds and at not in unfolded:
            rows.append(Row(at, [(part.folded or part.text, None)]))
        else:
            rows += [Row(at, [(line.plain, None)]) for line in Content(part.text).wrap(width)]
    return rows


def _wrapped(tokens: Sequence[Token], width: int) -> Iterator[list[Piece]]:
    """Tokens in rows; one that has a line end or is wider than a row is in several."""
    pieces: list[Piece] = []
    room = width
    for token in tokens:
        for at, line in enumerate(shown(token.text).split("\n")):
            if at:
                room = -1  # not even for an empty text
            for piece in Content(line).fold(width):
                if piece.cell_length > room:
                    yield pieces
                    pieces = []
                    room = width
                pieces.append((piece.plain, token))
                room -= piece.cell_length
    yield pieces


def parted_from(rollouts: Sequence[Sequence[Part]]) -> list[list[Part]]:
    """Rollouts from where they part, as a first part says; all of them if one has nothing else."""
    texts = ["".join(f"{part.text}\n" for part in parts) for parts in rollouts]
    alike = common_start(texts)
    if alike >= min(map(len, texts)):
        return [*map(list, rollouts)]
    found = []
    for parts in rollouts:
        left = alike
        kept = [Part("", f"… {counted(alike, 'character')} alike …")]
        for part in parts:
            if left <= len(part.text):
                kept.append(part._replace(text=part.text[left:]))
            left = max(0, left - len(part.text) - 1)
        found.append(kept)
    return found
