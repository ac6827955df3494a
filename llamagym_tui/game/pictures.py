"""What an agent gives people to look at: drawings, of pieces or of dots, and maps of its policy.

A piece stands on a ground that is named by what it means, and each theme has a colour for it. Terminals without colours
show the text alone, so what a field is has to be seen by its text, too.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal, NamedTuple

Ground = Literal[
    "", "floor", "ice", "danger", "goal", "wall", "thing", "player", "card", "red card", "back"
]
"""The ground under a piece: floor, what ends an episode badly or well, what can be fetched or used,
the player's own field, a black card, a red one and a card's back. Empty: nothing.

A piece on the ground of a card is a whole card, as `` 10♠ ``; it is drawn larger where there is room."""


class Piece(NamedTuple):
    """Some text of a drawing, on one line."""

    text: str
    ground: Ground = ""


Line = str | Piece | Sequence[str | Piece]
Drawing = str | Sequence[Line]
DOTS = (
    (0x01, 0x08),
    (0x02, 0x10),
    (0x04, 0x20),
    (0x40, 0x80),
)
"""The dots of a Braille character by row and column, as bits."""
BRAILLE = 0x2800
"""The character without dots."""


class Landmark(NamedTuple):
    """A field of a panel on which no action is taken: a hole, the goal."""

    sign: str
    """One character."""
    name: str
    """Its name, a word or two."""
    ground: Ground = ""
    """The ground under it, for its colour."""


class Move(NamedTuple):
    """A field of a panel that stands for one action in a state, as an empty field of a board does."""

    state: Any
    """An observation."""
    action: int


class Panel(NamedTuple):
    """States in rows and columns, or a board."""

    title: str
    rows: Sequence[str]
    """Short labels of the rows, from the top; all empty for a board."""
    columns: Sequence[str]
    """Short labels of the columns; all empty for a board."""
    states: Sequence[Sequence[Any]]
    """For each field, row by row: an observation, a `Move`, a `Landmark`, or None if there is nothing."""
    row_name: str = ""
    """The name of the rows: ``your total``."""
    column_name: str = ""
    """The name of the columns: ``dealer shows``."""
    walls: Collection[tuple[int, int]] = ()
    """Index of row and column of each field that has a wall on its right."""


class PolicyMap(NamedTuple):
    """Panels of states, and how they are drawn."""

    panels: Sequence[Panel]
    action: int | None = None
    """The action whose probability is drawn as a heat map. None: the most probable action is drawn, by its sign."""
    signs: Sequence[str] = ()
    """A character for each action; empty: the first letters of their names, or their numbers."""
    best: Callable[[Any], Collection[int]] | None = None
    """A function from an observation to all best actions. None: the action of `Agent.expert` is the best, if there is
    an expert; people then read of the expert, or of optimal play if the agent has a baseline named ``optimal``."""
    like: str = ""
    """The name of the best play, instead of the expert or optimal play: ``the book``."""
    noun: str = ""
    """The noun for the states: ``hands``; states if empty."""
    possible: Callable[[Any], Collection[int]] | None = None
    """A function from an observation to the actions that can be taken, where the environment's ``action_mask`` rules
    others out. None: all can."""
    shows_one: bool = False
    """True if people see one panel at a time: the one in which the present state is."""


class Dots:
    """Dots and characters; x counts dots to the right and y downwards, and what is outside is left out."""

    def __init__(self, columns: int, rows: int) -> None:
        self.width = 2 * columns
        """In dots."""
        self.height = 4 * rows
        self._bits = [[0] * columns for _ in range(rows)]
        self._characters: dict[tuple[int, int], str] = {}

    def dot(self, x: int, y: int) -> None:
        if self._is_inside(x, y):
            row, row_of_dots = divmod(y, 4)
            column, column_of_dots = divmod(x, 2)
            self._bits[row][column] |= DOTS[row_of_dots][column_of_dots]

    def line(self, x: float, y: float, to_x: float, to_y: float) -> None:
        """The dots between two places, both of them included."""
        start_x = round(x)
        start_y = round(y)
        across = round(to_x) - start_x
        down = round(to_y) - start_y
        steps = max(1, abs(across), abs(down))
        for step in range(steps + 1):
            self.dot(start_x + round(across * step / steps), start_y + round(down * step / steps))

    def put(self, x: float, y: float, character: str) -> None:
        """A character in place of the dots around a place."""
        if self._is_inside(round(x), round(y)):
            row = round(y) // 4
            column = round(x) // 2
            self._characters[row, column] = character

    @property
    def lines(self) -> list[str]:
        """The rows from the top, all of the same width; a character without dots is a space."""
        found = []
        for row, bits_of_row in enumerate(self._bits):
            line = ""
            for column, bits in enumerate(bits_of_row):
                dots = chr(BRAILLE + bits) if bits else " "
                line += self._characters.get((row, column), dots)
            found.append(line)
        return found

    def _is_inside(self, x: int, y: int) -> bool:
        return 0 <= x < self.width and 0 <= y < self.height
