"""A walk over a map, for Frozen Lake and Cliff Walking; an observation names the fields around."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from llamagym_tui.agent import Drawing, Ground, Landmark, Panel, Piece, PolicyMap
from llamagym_tui.agents._tabular import TabularAgent

MOVES = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0)}
"""Change of row and column by the name of an action."""
SIGNS = {"left": "←", "down": "↓", "right": "→", "up": "↑"}
Rows = Sequence[str]
"""A map, row by row, in Gymnasium's letters: start, frozen, hole, goal."""


class GridAgent(TabularAgent):
    """Walks over a map; an observation is row * columns + column, both counted from 0 at the top left."""

    place: ClassVar[str]
    """The name of the map."""
    words: ClassVar[Mapping[str, str]]
    """The name of a field, by its letter."""
    glyphs: ClassVar[Mapping[str, str]]
    """The sign of a field, by its letter."""
    grounds: ClassVar[Mapping[str, Ground]]
    """The ground of a field, by its letter."""
    rows: Rows

    def seen(self, observation: Any) -> tuple[Rows, int, int]:
        """The map, and the row and column on which the agent stands."""
        row, column = divmod(int(observation), len(self.rows[0]))
        return self.rows, row, column

    def format_observation(self, observation: Any) -> str:
        rows, row, column = self.seen(observation)
        around = []
        for name in self.action_names:
            down, right = MOVES[name]
            around.append(f"{name} {self._word(rows, row + down, column + right)}")
        return f"You are at row {row}, column {column}: {', '.join(around)}."

    def _word(self, rows: Rows, row: int, column: int) -> str:
        is_inside = 0 <= row < len(rows) and 0 <= column < len(rows[0])
        return self.words[rows[row][column]] if is_inside else "edge"

    def describe_turn(self, observation: Any, action: Any, reward: float) -> str:
        _, row, column = self.seen(observation)
        return f"row {row}, column {column}"

    def draw(self, observation: Any) -> Drawing:
        """The map, the walker's field in brackets."""
        rows, row, column = self.seen(observation)
        lines = [
            [Piece(f" {self.glyphs[kind]} ", self.grounds[kind]) for kind in line] for line in rows
        ]
        lines[row][column] = Piece(f"[{self.glyphs[rows[row][column]]}]", "player")
        return lines

    def maps(self) -> Mapping[str, Rows]:
        """The maps of which the policy is shown, by their names."""
        return {self.place: self.rows}

    def observation_on(self, rows: Rows, number: int) -> Any:
        """The observation on a field of a map, which has this number, counted row by row."""
        return number

    def policy_map(self) -> PolicyMap:
        """Every field of each map; holes and the goal are landmarks."""
        panels = [self._panel(title, rows) for title, rows in self.maps().items()]
        signs = "".join(SIGNS[name] for name in self.action_names)
        return PolicyMap(panels, signs=signs, best=self.first_actions)

    def _panel(self, title: str, rows: Rows) -> Panel:
        width = len(rows[0])
        states: list[list[Any]] = []
        for row, line in enumerate(rows):
            states.append([])
            for column, kind in enumerate(line):
                if kind in "HG":
                    state = Landmark(self.glyphs[kind], self.words[kind], self.grounds[kind])
                else:
                    state = self.observation_on(rows, row * width + column)
                states[row].append(state)
        row_labels = [str(row) for row in range(len(rows))]
        column_labels = [str(column) for column in range(width)]
        return Panel(title, row_labels, column_labels, states, "row", "column")
