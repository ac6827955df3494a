"""CliffWalking-v1: walk along a cliff to the goal; a fall costs 100 and begins again.

The environment shows the number of a field and nothing of the map. The agent puts it in words: where it stands, and
what lies up, right, down and left of there.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from llamagym_tui.agent import ActionReading, Agent, Landmark, Panel, PolicyMap, fields, read_action

ROWS, COLUMNS = 4, 12
PLACES = [[(row, column) for column in range(COLUMNS)] for row in range(ROWS)]
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
"""Change of row and column by each action."""


class CliffWalkingAgent(Agent):
    """Plays ``CliffWalking-v1``; an observation is row * 12 + column, both counted from 0 at the top left."""

    history = 0
    env_id = "CliffWalking-v1"
    title = "Cliff Walking"
    description = "Walk along the cliff to the goal without falling."
    picture = " ·  ·  ·  ·\n ·  ·  ·  ·\n[S] #  #  G"
    action_names = ("up", "right", "down", "left")
    action_keys: ClassVar[Mapping[str, int]] = {"w": 0, "d": 1, "s": 2, "a": 3}
    baselines: ClassVar[Mapping[str, float]] = {"random": -2079.1, "optimal": -13.0}
    """Exact mean returns within 200 steps; ``python -m benchmarks.world_baselines cliff_walking`` computes them."""

    def get_system_prompt(self) -> str:
        return (
            "You are playing Cliff Walking. Reach the goal in few steps without falling off the cliff. "
            'Reply with {"action": 0} to go up, {"action": 1} to go right, '
            '{"action": 2} to go down or {"action": 3} to go left.'
        )

    def format_observation(self, observation: Any) -> str:
        row, column = fields(int(observation), (ROWS, COLUMNS))
        around = [
            f"{name} {word(row + down, column + right)}"
            for name, (down, right) in zip(self.action_names, MOVES, strict=True)
        ]
        return f"You are at row {row}, column {column}: {', '.join(around)}."

    def draw(self, observation: Any) -> str:
        """The walker's field in brackets: S start, · ground, # cliff, G goal."""
        here = tuple(fields(int(observation), (ROWS, COLUMNS)))
        rows = [[f"[{glyph(*at)}]" if at == here else f" {glyph(*at)} " for at in row] for row in PLACES]
        return "\n".join(map("".join, rows))

    def extract_action(self, response: str) -> ActionReading:
        return read_action(response, self.action_names)

    def expert(self, observation: Any) -> int | None:
        """The first step of a shortest path, along the cliff; None where nobody stands."""
        return next(iter(self.first_actions(observation)), None)

    def first_actions(self, observation: Any) -> list[int]:
        """The first actions of all shortest paths to the goal."""
        row, column = fields(int(observation), (ROWS, COLUMNS))
        if word(row, column) in ("cliff", "goal"):
            return []
        if row == ROWS - 1:
            return [0]
        return [1] * (column < COLUMNS - 1) + [2] * (row < ROWS - 2 or column == COLUMNS - 1)

    def policy_map(self) -> PolicyMap:
        def state(row: int, column: int) -> Landmark | int:
            what = word(row, column)
            return Landmark(glyph(row, column), what) if what in ("cliff", "goal") else row * COLUMNS + column

        states = [[state(*at) for at in row] for row in PLACES]
        rows, columns = ([str(number) for number in range(size)] for size in (ROWS, COLUMNS))
        panel = Panel("cliff", rows, columns, states, "row", "column")
        return PolicyMap([panel], signs="↑→↓←", best=self.first_actions)


def word(row: int, column: int) -> str:
    if row not in range(ROWS) or column not in range(COLUMNS):
        return "edge"
    if row < ROWS - 1 or column == 0:
        return "ground"
    return "goal" if column == COLUMNS - 1 else "cliff"


def glyph(row: int, column: int) -> str:
    if (row, column) == (ROWS - 1, 0):
        return "S"
    return {"ground": "·", "cliff": "#", "goal": "G"}[word(row, column)]
