"""A walk over a map, for Frozen Lake and Cliff Walking; an observation names the fields around."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, NamedTuple

from llamagym_tui.agent import Agent, Drawing, Ground, Landmark, Panel, Piece, PolicyMap

MOVES = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0)}
"""Change of row and column by the name of an action."""
SIGNS = {"left": "←", "down": "↓", "right": "→", "up": "↑"}
DISCOUNT = 0.99
"""Discount of the value iteration that finds the best actions; below 1, so that an earlier goal is better."""
SWEEPS = 500
"""Sweeps of this value iteration, at most."""


class Field(NamedTuple):
    """A field of a map; row and column count from 0 at the top left."""

    row: int
    column: int


class Grid(NamedTuple):
    """A map, what can be done on it, and how probable it is that a step goes where it was meant to."""

    rows: tuple[str, ...]
    """The map, row by row, in Gymnasium's letters: start, frozen, hole, goal."""
    actions: tuple[str, ...]
    """Names of the actions, in the order of their indices."""
    sure: float = 1.0
    """Probability that a step goes where it was meant to; otherwise it goes to either side."""

    def kind(self, field: Field) -> str:
        """The letter of a field; empty beyond the edge of the map."""
        is_inside = 0 <= field.row < len(self.rows) and 0 <= field.column < len(self.rows[0])
        return self.rows[field.row][field.column] if is_inside else ""

    def around(self, field: Field) -> list[Field]:
        """The field to which each action is meant to lead, in the order of the actions."""
        found = []
        for name in self.actions:
            down, right = MOVES[name]
            found.append(Field(field.row + down, field.column + right))
        return found


class GridAgent(Agent):
    """Walks over a map; an observation is row * columns + column, both counted from 0 at the top left."""

    history = 0
    place: ClassVar[str]
    """The name of the map."""
    words: ClassVar[Mapping[str, str]]
    """The name of a field, by its letter."""
    glyphs: ClassVar[Mapping[str, str]]
    """The sign of a field, by its letter."""
    grounds: ClassVar[Mapping[str, Ground]]
    """The ground of a field, by its letter."""

    @property
    @abstractmethod
    def grid(self) -> Grid:
        """The map on which the agent walks."""

    def _seen(self, observation: Any) -> tuple[Grid, Field]:
        """The map, and the field on which the agent stands."""
        grid = self.grid
        row, column = divmod(int(observation), len(grid.rows[0]))
        return grid, Field(row, column)

    def format_observation(self, observation: Any) -> str:
        grid, here = self._seen(observation)
        around = []
        for name, field in zip(grid.actions, grid.around(here), strict=True):
            around.append(f"{name} {self.words.get(grid.kind(field), 'edge')}")
        return f"You are at row {here.row}, column {here.column}: {', '.join(around)}."

    def describe_turn(self, observation: Any, action: Any, reward: float) -> str:
        _, here = self._seen(observation)
        return f"row {here.row}, column {here.column}"

    def draw(self, observation: Any) -> Drawing:
        """The map, the walker's field in brackets."""
        grid, (row, column) = self._seen(observation)
        rows = [
            [Piece(f" {self.glyphs[kind]} ", self.grounds[kind]) for kind in line]
            for line in grid.rows
        ]
        rows[row][column] = Piece(f"[{self.glyphs[grid.rows[row][column]]}]", "player")
        return rows

    def expert(self, observation: Any) -> int | None:
        """One of the best actions; if no step slips, it begins a shortest path. None: the goal cannot be reached."""
        best = self.first_actions(observation)
        return best[0] if best else None

    def first_actions(self, observation: Any) -> list[int]:
        """All best actions, in the order of their indices; none if the goal cannot be reached."""
        grid, here = self._seen(observation)
        return best_actions(grid).get(here, [])

    def policy_map(self) -> PolicyMap:
        """Every field of the map; holes and the goal are landmarks."""
        return self._mapped([self._panel(self.place, self.grid.rows, int)])

    def _mapped(self, panels: list[Panel]) -> PolicyMap:
        """Panels of maps, with what is best on each field."""
        signs = "".join(SIGNS[name] for name in self.action_names)
        return PolicyMap(panels, signs=signs, best=self.first_actions)

    def _panel(
        self, title: str, rows: Sequence[str], observation_of: Callable[[int], Any]
    ) -> Panel:
        """Every field of one map; `observation_of` gets its number, counted row by row."""
        landmarks = {
            kind: Landmark(self.glyphs[kind], self.words[kind], self.grounds[kind]) for kind in "HG"
        }
        width = len(rows[0])
        states: list[list[Any]] = []
        for row, line in enumerate(rows):
            numbers = range(row * width, (row + 1) * width)
            states.append(
                [
                    landmarks.get(kind, observation_of(number))
                    for kind, number in zip(line, numbers, strict=True)
                ]
            )
        row_labels = [str(row) for row in range(len(rows))]
        column_labels = [str(column) for column in range(width)]
        return Panel(title, row_labels, column_labels, states, "row", "column")


@cache
def best_actions(grid: Grid) -> dict[Field, list[int]]:
    """The best actions on every field from which the goal can be reached, by value iteration."""
    fields = [
        Field(row, column) for row, line in enumerate(grid.rows) for column in range(len(line))
    ]
    ground = [field for field in fields if grid.kind(field) in "SF"]
    values = {field: 1.0 if grid.kind(field) == "G" else 0.0 for field in fields}

    def action_values(here: Field) -> list[float]:
        """The value of each action, which may slip to either side; a step over the edge stays where it is."""
        after = [values.get(to, values[here]) for to in grid.around(here)]
        slips_to_one_side = (1 - grid.sure) / 2
        found = []
        for action in range(4):
            # The four actions go round the compass, so its neighbours in their order lead to its sides.
            sides = after[action - 1] + after[(action + 1) % 4]
            found.append(DISCOUNT * (grid.sure * after[action] + slips_to_one_side * sides))
        return found

    for _ in range(SWEEPS):
        before = dict(values)
        values |= {here: max(action_values(here)) for here in ground}
        if values == before:
            break
    best = {}
    for here in ground:
        if values[here] > 0:
            worth = action_values(here)
            nearly_most = max(worth) - 1e-9  # rounding must not decide between equal actions
            best[here] = [action for action, value in enumerate(worth) if value > nearly_most]
    return best
