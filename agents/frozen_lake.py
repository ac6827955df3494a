"""FrozenLake-v1: walk to the goal around the holes, on ice that slips or does not.

The environment shows the number of a field and nothing of the map. The agent puts it in words: where it stands, and
what lies left, down, right and up of there. Other maps are keyword arguments of the environment.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, NamedTuple

from llamagym_tui.agent import ActionReading, Agent, Landmark, Panel, PolicyMap, read_action

MAPS = {
    "4x4": ("SFFF", "FHFH", "FFFH", "HFFG"),
    "8x8": ("SFFFFFFF", "FFFFFFFF", "FFFHFFFF", "FFFFFHFF", "FFFHFFFF", "FHHFFFHF", "FHFFHFHF", "FFFHFFFG"),
}
"""Gymnasium's, row by row: start, frozen, hole, goal."""
WORDS = {"S": "ice", "F": "ice", "H": "hole", "G": "goal"}
GLYPHS = {"S": "S", "F": "·", "H": "O", "G": "G"}
MOVES = ((0, -1), (1, 0), (0, 1), (-1, 0))
"""Change of row and column by each action."""
DISCOUNT, SWEEPS = 0.99, 500
"""Of the value iteration that finds the best actions: an earlier goal is better."""


class Field(NamedTuple):
    """A place on a lake, or around it."""

    row: int
    column: int

    @property
    def neighbours(self) -> "list[Field]":
        """The fields left, down, right and up of it."""
        return [Field(self.row + down, self.column + right) for down, right in MOVES]


class Lake(NamedTuple):
    """A map, and how probable it is that a step goes where it was meant to."""

    rows: tuple[str, ...]
    sure: float

    def field(self, observation: Any) -> Field:
        return Field(*divmod(int(observation), len(self.rows[0])))

    def word(self, field: Field) -> str:
        inside = 0 <= field.row < len(self.rows) and 0 <= field.column < len(self.rows[0])
        return WORDS[self.rows[field.row][field.column]] if inside else "edge"


class FrozenLakeAgent(Agent):
    """Plays ``FrozenLake-v1``; an observation is row * columns + column, both counted from 0 at the top left."""

    history = 0
    env_id = "FrozenLake-v1"
    env_kwargs: ClassVar[Mapping[str, Any]] = {"map_name": "4x4", "is_slippery": False}
    title = "Frozen Lake"
    description = "Cross the ice to the goal without falling into a hole."
    picture = "[S] ·  ·  ·\n ·  O  ·  O\n ·  ·  ·  O\n O  ·  ·  G"
    action_names = ("left", "down", "right", "up")
    action_keys: ClassVar[Mapping[str, int]] = {"a": 0, "s": 1, "d": 2, "w": 3}
    baselines: ClassVar[Mapping[str, float]] = {"random": 0.0139, "optimal": 1.0}
    """Exact shares of episodes that reach the goal within 100 steps, undiscounted, by dynamic programming."""

    @property
    def lake(self) -> Lake:
        given = self.env_kwargs
        slips = given.get("is_slippery", True)
        rows = given.get("desc") or MAPS[given.get("map_name", "4x4")]
        return Lake(tuple(rows), given.get("success_rate", 1 / 3) if slips else 1.0)

    def get_system_prompt(self) -> str:
        slips = "The ice is slippery: a step may go sideways. " if self.lake.sure < 1 else ""
        return (
            f"You are playing Frozen Lake. Reach the goal without falling into a hole. {slips}"
            'Reply with {"action": 0} to go left, {"action": 1} to go down, '
            '{"action": 2} to go right or {"action": 3} to go up.'
        )

    def format_observation(self, observation: Any) -> str:
        here = self.lake.field(observation)
        around = [
            f"{name} {self.lake.word(field)}" for name, field in zip(self.action_names, here.neighbours, strict=True)
        ]
        return f"You are at row {here.row}, column {here.column}: {', '.join(around)}."

    def describe_return(self, mean: float) -> str:
        """Every hundredth that is returned is an episode in a hundred."""
        known = ", ".join(f"{name} {100 * value:.0f}" for name, value in self.baselines.items())
        return f"reaches the goal in {100 * mean:.0f} of 100 episodes{f' ({known})' if known else ''}"

    def draw(self, observation: Any) -> str:
        """The lake, the walker's field in brackets: S start, · ice, O hole, G goal."""
        here = self.lake.field(observation)
        return "\n".join(
            "".join(
                f"[{GLYPHS[kind]}]" if Field(row, column) == here else f" {GLYPHS[kind]} "
                for column, kind in enumerate(line)
            )
            for row, line in enumerate(self.lake.rows)
        )

    def extract_action(self, response: str) -> ActionReading:
        return read_action(response, self.action_names)

    def expert(self, observation: Any) -> int | None:
        """A best action, where the goal can be reached: without slipping, the first of a shortest path."""
        return next(iter(self.first_actions(observation)), None)

    def first_actions(self, observation: Any) -> list[int]:
        """All best actions, ascending; none where the goal cannot be reached."""
        return best_actions(self.lake).get(self.lake.field(observation), [])

    def policy_map(self) -> PolicyMap:
        size = len(self.lake.rows[0])
        fields = [
            [
                row * size + column if kind in "SF" else Landmark(GLYPHS[kind], WORDS[kind])
                for column, kind in enumerate(line)
            ]
            for row, line in enumerate(self.lake.rows)
        ]
        labels = [str(number) for number in range(size)]
        panel = Panel("lake", labels, labels, fields, "row", "column")
        return PolicyMap([panel], signs="←↓→↑", best=self.first_actions)


@cache
def best_actions(lake: Lake) -> dict[Field, list[int]]:
    """The best actions on every field from which the goal can be reached, by value iteration."""
    places = [Field(row, column) for row, line in enumerate(lake.rows) for column in range(len(line))]
    ice = [place for place in places if lake.word(place) == "ice"]
    values = {place: float(lake.word(place) == "goal") for place in places}

    def worth(here: Field) -> list[float]:
        """Of each action, which may go to either side of it."""
        ends = [values[here] if lake.word(to) == "edge" else values[to] for to in here.neighbours]
        side = (1 - lake.sure) / 2
        return [
            DISCOUNT * (lake.sure * ends[action] + side * (ends[action - 1] + ends[(action + 1) % 4]))
            for action in range(4)
        ]

    for _ in range(SWEEPS):
        values |= {here: max(worth(here)) for here in ice}
    return {
        here: [action for action, value in enumerate(worth(here)) if value > max(worth(here)) - 1e-9]
        for here in ice
        if values[here] > 0
    }
