"""What Frozen Lake and Cliff Walking share: walks over a map, of which the agent names the fields around it."""

from abc import abstractmethod
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, NamedTuple

from llamagym_tui.agent import Agent, Landmark, Panel, PolicyMap

MOVES = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0)}
"""Change of row and column by the name of an action."""
SIGNS = {"left": "←", "down": "↓", "right": "→", "up": "↑"}
DISCOUNT, SWEEPS = 0.99, 500
"""Of the value iteration that finds the best actions: an earlier goal is better."""


class Field(NamedTuple):
    row: int
    column: int


class Grid(NamedTuple):
    """A map, what can be done on it, and how probable it is that a step goes where it was meant to."""

    rows: tuple[str, ...]
    """In Gymnasium's letters: start, frozen, hole, goal."""
    actions: tuple[str, ...]
    sure: float = 1.0

    def kind(self, field: Field) -> str:
        """The letter of a field; empty beyond the edge."""
        inside = 0 <= field.row < len(self.rows) and 0 <= field.column < len(self.rows[0])
        return self.rows[field.row][field.column] if inside else ""

    def around(self, field: Field) -> list[Field]:
        return [
            Field(field.row + MOVES[name][0], field.column + MOVES[name][1])
            for name in self.actions
        ]


class GridAgent(Agent):
    """Walks over a map; an observation is row * columns + column, both counted from 0 at the top left."""

    history = 0
    place: ClassVar[str]
    """What the map shows."""
    words: ClassVar[Mapping[str, str]]
    """What a field is, by its letter."""
    glyphs: ClassVar[Mapping[str, str]]

    @property
    @abstractmethod
    def grid(self) -> Grid: ...

    def _field(self, observation: Any) -> Field:
        return Field(*divmod(int(observation), len(self.grid.rows[0])))

    def format_observation(self, observation: Any) -> str:
        here, grid = self._field(observation), self.grid
        kinds = zip(grid.actions, map(grid.kind, grid.around(here)), strict=True)
        around = ", ".join(f"{name} {self.words.get(kind, 'edge')}" for name, kind in kinds)
        return f"You are at row {here.row}, column {here.column}: {around}."

    def draw(self, observation: Any) -> str:
        """The map, the walker's field in brackets."""
        rows = [[f" {self.glyphs[kind]} " for kind in row] for row in self.grid.rows]
        row, column = self._field(observation)
        rows[row][column] = f"[{rows[row][column].strip()}]"
        return "\n".join(map("".join, rows))

    def expert(self, observation: Any) -> int | None:
        """A best action, where the goal can be reached: without slipping, the first of a shortest path."""
        return next(iter(self.first_actions(observation)), None)

    def first_actions(self, observation: Any) -> list[int]:
        """All best actions, ascending; none where the goal cannot be reached."""
        return best_actions(self.grid).get(self._field(observation), [])

    def policy_map(self) -> PolicyMap:
        marks, width = (
            {kind: Landmark(self.glyphs[kind], self.words[kind]) for kind in "HG"},
            len(self.grid.rows[0]),
        )
        states = [
            [marks.get(kind, row * width + column) for column, kind in enumerate(line)]
            for row, line in enumerate(self.grid.rows)
        ]
        rows, columns = ([str(number) for number in range(size)] for size in (len(states), width))
        panel = Panel(self.place, rows, columns, states, "row", "column")
        return PolicyMap(
            [panel],
            signs="".join(SIGNS[name] for name in self.action_names),
            best=self.first_actions,
        )


@cache
def best_actions(grid: Grid) -> dict[Field, list[int]]:
    """The best actions on every field from which the goal can be reached, by value iteration."""
    places = [
        Field(row, column) for row, line in enumerate(grid.rows) for column in range(len(line))
    ]
    ground = [place for place in places if grid.kind(place) in "SF"]
    values = {place: float(grid.kind(place) == "G") for place in places}

    def worth(here: Field) -> list[float]:
        """Of each action, which may go to either side of it."""
        ends = [values.get(to, values[here]) for to in grid.around(here)]
        side = (1 - grid.sure) / 2
        return [
            DISCOUNT
            * (grid.sure * ends[action] + side * (ends[action - 1] + ends[(action + 1) % 4]))
            for action in range(4)
        ]

    for _ in range(SWEEPS):
        values |= {here: max(worth(here)) for here in ground}
    return {
        here: [
            action for action, value in enumerate(worth(here)) if value > max(worth(here)) - 1e-9
        ]
        for here in ground
        if values[here] > 0
    }
