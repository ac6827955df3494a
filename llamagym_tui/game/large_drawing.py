"""A drawing as large as its room allows: cards in their frames, with rank and suit in two corners, and larger fields.

An agent gives cards as pieces of one line, a hand a line, and a field of a board as a piece of three characters. Where
there is no room for more, that is what is drawn.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, cast

from llamagym_tui.game.drawing import StateDrawing, joined
from llamagym_tui.game.pictures import Ground, Piece

CARDS = ("card", "red card", "back")
"""The grounds of cards."""
SUITS = "♠♥♣♦"
APART = "   "
"""Between two hands next to each other."""
Line = list[str | Piece]


class CardSize(NamedTuple):
    """Width and height of a card with its frame, or of a field, in columns and rows."""

    width: int
    height: int


FIELD = CardSize(7, 3)
"""A field of a board."""
WALLS = "│ "
"""What may stand between fields; it is as high as they are."""
LARGE = CardSize(7, 5)
SMALL = CardSize(5, 3)


class Hand(NamedTuple):
    """A line of cards, and what stands beside them."""

    label: str
    cards: Sequence[Piece]

    def width(self, size: CardSize) -> int:
        return max(len(self.label), len(self.cards) * size.width)

    def lines(self, size: CardSize) -> list[Line]:
        """The label above the cards, each line as wide as the hand."""
        width = self.width(size)
        rest = " " * (width - len(self.cards) * size.width)
        faces = [_card_lines(card, size) for card in self.cards]
        rows: list[Line] = [[*row, rest] for row in zip(*faces, strict=True)]
        return [[self.label.ljust(width)], *rows]


def large_drawing(
    text: str, grounds: Sequence[tuple[int, int, str]], columns: int, rows: int
) -> StateDrawing:
    """A drawing with its cards or fields as large as they fit into a room, or as it is.

    Hands lie below each other if there are rows for large cards, else beside each other.
    """
    lines = list(_lines(text, grounds))
    hands = [_hand(line) for line in lines if _has_cards(line)]
    if not hands:
        board = joined([row for line in lines for row in _larger(line)], rows)
        larger = board.text.split("\n")
        wanted = sum(FIELD.height if _has_fields(line) else 1 for line in lines)
        fits = max(map(len, larger)) <= columns and wanted <= rows
        return board if fits and _is_board(lines) else StateDrawing(text, tuple(grounds))
    others = [line for line in lines if not _has_cards(line)]
    for size, is_beside in ((LARGE, False), (LARGE, True), (SMALL, True), (SMALL, False)):
        widths = [hand.width(size) for hand in hands]
        heights = [1 + size.height] * len(hands)
        width = sum(widths) + len(APART) * (len(hands) - 1) if is_beside else max(widths)
        height = max(heights) if is_beside else sum(heights)
        if width <= columns and height + len(others) <= rows:
            laid = _beside(hands, size) if is_beside else _below(hands, size)
            return joined([*laid, *others])
    return StateDrawing(text, tuple(grounds))


def _is_board(lines: Sequence[Sequence[Piece]]) -> bool:
    """True if nothing but walls stands between fields."""
    boards = [line for line in lines if _has_fields(line)]
    others = [piece.text for line in boards for piece in line if not piece.ground]
    return bool(boards) and all(set(text) <= set(WALLS) for text in others)


def _has_fields(line: Sequence[Piece]) -> bool:
    return any(piece.ground for piece in line)


def _larger(line: Sequence[Piece]) -> list[Sequence[Piece]]:
    """A line of fields as rows of larger ones; any other line as it is."""
    if not _has_fields(line):
        return [line]
    rows: list[Sequence[Piece]] = []
    for row in range(FIELD.height):
        pieces = []
        for piece in line:
            is_field = len(piece.text) == 3
            text = piece.text.center(FIELD.width) if is_field else piece.text
            is_middle = row == FIELD.height // 2 or not is_field
            pieces.append(piece._replace(text=text if is_middle else " " * len(text)))
        rows.append(pieces)
    return rows


def _beside(hands: Sequence[Hand], size: CardSize) -> list[Line]:
    blocks = [hand.lines(size) for hand in hands]
    lines = []
    for row in zip(*blocks, strict=True):
        line: Line = []
        for part in row:
            line += [*([APART] if line else []), *part]
        lines.append(line)
    return lines


def _below(hands: Sequence[Hand], size: CardSize) -> list[Line]:
    return [line for hand in hands for line in hand.lines(size)]


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


def _has_cards(line: Sequence[Piece]) -> bool:
    return any(piece.ground in CARDS for piece in line)


def _hand(line: Sequence[Piece]) -> Hand:
    cards = [piece for piece in line if piece.ground in CARDS]
    label = " ".join(piece.text.strip() for piece in line if piece.ground not in CARDS)
    return Hand(label.strip(), cards)
