"""A drawing as large as its room allows: cards in their frames, with rank and suit in two corners, and larger fields.

An agent gives cards as pieces of one line, a hand a line, and a field of a board as a piece of three characters. Where
there is no room for more, that is what is drawn.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple, cast

from llamagym_tui.game.drawing import StateDrawing, joined
from llamagym_tui.game.pictures import Ground, Piece

CARDS = ("card", "red card", "back")
"""The grounds of cards."""
SUITS = "♠♥♣♦"
APART = Piece("   ")
"""Between two hands next to each other."""
Line = Sequence[Piece]


class CardSize(NamedTuple):
    """Width and height of a card in columns and rows, with its frame."""

    width: int
    height: int


FIELD_CHARACTERS = 3
FIELD_WIDTH = 7
"""Columns of a large field, which has three lines."""
WALLS = "│ "
"""What may stand between fields; it is as high as they are."""
LARGE = CardSize(7, 5)
SMALL = CardSize(5, 3)


def large_drawing(
    text: str, grounds: Sequence[tuple[int, int, str]], columns: int, rows: int
) -> StateDrawing:
    """A drawing with its cards or fields as large as they fit into a room, or as it is."""
    for lines in _larger_ones([*_lines(text, grounds)]):
        is_narrow = max(sum(len(piece.text) for piece in line) for line in lines) <= columns
        if is_narrow and len(lines) <= rows:
            return joined(lines, rows)
    return StateDrawing(text, tuple(grounds))


def _larger_ones(lines: Sequence[Line]) -> Iterator[list[Line]]:
    """Larger forms, the largest first: hands lie below each other if there is room, else beside each other."""
    hands = [line for line in lines if any(piece.ground in CARDS for piece in line)]
    others = [line for line in lines if line not in hands]
    if not hands and _is_board(lines):
        yield [*chain(*map(_larger_fields, lines))]
    for size in (LARGE, SMALL) if hands else ():
        blocks = [_hand_lines(hand, size) for hand in hands]
        yield [*chain(*blocks), *others]
        yield [*map(_beside, zip(*blocks, strict=True)), *others]


def _beside(lines: Sequence[Line]) -> Line:
    apart = [[APART, *line] for line in lines]
    return [*chain(*apart)][1:]


def _hand_lines(hand: Line, size: CardSize) -> list[Line]:
    """What the hand is above its cards, each line as wide as the others."""
    cards = [piece for piece in hand if piece.ground in CARDS]
    label = "".join(piece.text for piece in hand if piece not in cards).strip()
    missing = len(label) - len(cards) * size.width
    rest = Piece(" " * max(0, missing))
    faces = zip(*(_card_lines(card, size) for card in cards), strict=True)
    return [[Piece(label + " " * max(0, -missing))], *([*row, rest] for row in faces)]


def _is_board(lines: Sequence[Line]) -> bool:
    """True if there are fields, and nothing but walls between them."""
    boards = [line for line in lines if _has_fields(line)]
    between = [piece.text for piece in chain(*boards) if not piece.ground]
    return bool(boards) and set("".join(between)) <= set(WALLS)


def _has_fields(line: Line) -> bool:
    return any(piece.ground for piece in line)


def _larger_fields(line: Line) -> list[Line]:
    """A line of fields as rows of larger ones; any other line as it is."""
    if not _has_fields(line):
        return [line]
    middle = []
    edge = []
    for piece in line:
        is_field = len(piece.text) == FIELD_CHARACTERS
        text = piece.text.center(FIELD_WIDTH) if is_field else piece.text
        middle.append(piece._replace(text=text))
        edge.append(piece._replace(text=" " * FIELD_WIDTH if is_field else text))
    return [edge, middle, edge]


def _card_lines(card: Piece, size: CardSize) -> list[Piece]:
    """A card from its upper edge to its lower one."""
    inside = size.width - 2
    face = card.text.strip()
    rank = face.rstrip(SUITS)
    suit = face.removeprefix(rank)
    if card.ground == "back":
        middle = ["░" * inside] * (size.height - 2)
    elif size.height == SMALL.height:
        middle = [rank.ljust(inside - len(suit)) + suit]
    else:
        upper = rank.ljust(inside - len(suit)) + suit
        lower = suit + rank.rjust(inside - len(suit))
        middle = [upper, *[" " * inside] * (size.height - 4), lower]
    lines = [f"╭{'─' * inside}╮", *(f"│{line}│" for line in middle), f"╰{'─' * inside}╯"]
    return [card._replace(text=line) for line in lines]


def _lines(text: str, grounds: Sequence[tuple[int, int, str]]) -> Iterator[list[Piece]]:
    """The pieces of each line; what stands on no ground is a piece, too."""
    start = 0
    for line in text.split("\n"):
        stop = start + len(line)
        pieces = []
        at = start
        for first, last, ground in grounds:
            if start <= first < last <= stop:
                pieces.append(Piece(text[at:first]))
                pieces.append(Piece(text[first:last], cast(Ground, ground)))
                at = last
        pieces.append(Piece(text[at:stop]))
        yield [piece for piece in pieces if piece.text]
        start = stop + 1
