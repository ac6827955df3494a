"""FrozenLake-v1 on the map 4x4, without slipping: walk to the goal around the holes.

The environment shows the number of a field and nothing of the map. The agent puts it in words: where it stands, and
what lies left, down, right and up of there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from llamagym_tui.agent import ActionReading, Agent, read_action

if TYPE_CHECKING:
    from llamagym_tui.agent import PolicyMap

LAKE = ("SFFF", "FHFH", "FFFH", "HFFG")
"""Gymnasium's map 4x4, row by row: start, frozen, hole, goal."""
WORDS = {"S": "ice", "F": "ice", "H": "hole", "G": "goal"}
GLYPHS = {"S": "S", "F": "·", "H": "O", "G": "G"}
MOVES = ((0, -1), (1, 0), (0, 1), (-1, 0))
"""Change of row and column by each action."""


class Field(NamedTuple):
    """A place on the lake, or around it."""

    row: int
    column: int

    @property
    def word(self) -> str:
        inside = 0 <= self.row < len(LAKE) and 0 <= self.column < len(LAKE[0])
        return WORDS[LAKE[self.row][self.column]] if inside else "edge"

    @property
    def neighbours(self) -> list[Field]:
        """The fields left, down, right and up of it."""
        return [Field(self.row + down, self.column + right) for down, right in MOVES]


class FrozenLakeAgent(Agent):
    """Plays ``FrozenLake-v1``; an observation is row * 4 + column, both counted from 0 at the top left."""

    env_id = "FrozenLake-v1"
    env_kwargs: ClassVar[Mapping[str, Any]] = {"map_name": "4x4", "is_slippery": False}
    title = "Frozen Lake"
    description = "Cross the ice to the goal without falling into a hole."
    picture = "[S] ·  ·  ·\n ·  O  ·  O\n ·  ·  ·  O\n O  ·  ·  G"
    action_names = ("left", "down", "right", "up")
    action_keys: ClassVar[Mapping[str, int]] = {"a": 0, "s": 1, "d": 2, "w": 3}
    baselines: ClassVar[Mapping[str, float]] = {"random": 0.0139, "optimal": 1.0}
    """Exact shares of episodes that reach the goal within 100 steps, undiscounted, by dynamic programming."""

    def get_system_prompt(self) -> str:
        return (
            "You are playing Frozen Lake. Reach the goal without falling into a hole. "
            'Reply with {"action": 0} to go left, {"action": 1} to go down, '
            '{"action": 2} to go right or {"action": 3} to go up.'
        )

    def format_observation(self, observation: Any) -> str:
        here = _field(observation)
        around = [f"{name} {field.word}" for name, field in zip(self.action_names, here.neighbours, strict=True)]
        return f"You are at row {here.row}, column {here.column}: {', '.join(around)}."

    def draw(self, observation: Any) -> str:
        """The lake, the walker's field in brackets: S start, · ice, O hole, G goal."""
        here = _field(observation)
        return "\n".join(
            "".join(
                f"[{GLYPHS[kind]}]" if Field(row, column) == here else f" {GLYPHS[kind]} "
                for column, kind in enumerate(line)
            )
            for row, line in enumerate(LAKE)
        )

    def extract_action(self, response: str) -> ActionReading:
        return read_action(response, self.action_names)

    def expert(self, observation: Any) -> int | None:
        """The first action of a shortest path to the goal; None where no path begins."""
        return next(iter(self.first_actions(observation)), None)

    def first_actions(self, observation: Any) -> list[int]:
        """The first actions of all shortest paths to the goal, ascending; none where no path begins."""
        here, distance = _field(observation), steps_to_goal()
        if not distance.get(here):
            return []
        return [action for action, field in enumerate(here.neighbours) if distance.get(field) == distance[here] - 1]

    def policy_map(self) -> PolicyMap:
        from llamagym_tui.agent import Landmark, Panel, PolicyMap

        size = len(LAKE[0])
        fields = [
            [
                row * size + column if kind in "SF" else Landmark(GLYPHS[kind], WORDS[kind])
                for column, kind in enumerate(line)
            ]
            for row, line in enumerate(LAKE)
        ]
        labels = [str(number) for number in range(size)]
        panel = Panel("lake", labels, labels, fields, "row", "column")
        return PolicyMap([panel], signs="←↓→↑", best=self.first_actions)


@cache
def steps_to_goal() -> dict[Field, int]:
    """Length of a shortest path to the goal from every field that has one, holes left out."""
    goal = next(Field(row, line.index("G")) for row, line in enumerate(LAKE) if "G" in line)
    distance, frontier = {goal: 0}, deque([goal])
    while frontier:
        here = frontier.popleft()
        for field in here.neighbours:
            if field.word == "ice" and field not in distance:
                distance[field] = distance[here] + 1
                frontier.append(field)
    return distance


def _field(observation: Any) -> Field:
    return Field(*divmod(int(observation), len(LAKE[0])))
