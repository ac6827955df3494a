"""A drawing in Braille dots, two across and four down in each character, which are about as far apart either way."""

DOTS = (
    (0x01, 0x08),
    (0x02, 0x10),
    (0x04, 0x20),
    (0x40, 0x80),
)
"""The dots of a Braille character by row and column, as bits."""
BRAILLE = 0x2800
"""The character without dots."""


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
