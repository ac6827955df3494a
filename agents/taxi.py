"""Taxi-v4, which shows one number of 500: fetch a passenger at a stand and take them to another one."""

from collections import deque
from functools import cache
from typing import Any

from llamagym_tui.agent import Agent, Panel, PolicyMap, fields

MAP = (
    "+---------+",
    "|R: | : :G|",
    "| : | : : |",
    "| : : : : |",
    "| | : | : |",
    "|Y| : |B: |",
    "+---------+",
)
"""Gymnasium's own."""
SIZES = (5, 5, 5, 4)
"""Of row, column, place of the passenger and destination in an observation."""
STANDS = {"red": (0, 0), "green": (0, 4), "yellow": (4, 0), "blue": (4, 3)}
NAMES = (*STANDS, "taxi")
MOVES = ((1, 0), (-1, 0), (0, 1), (0, -1))
"""Change of row and column by each of the first four actions."""
PICK_UP, DROP_OFF, IN_TAXI = 4, 5, 4
Place = tuple[int, int]


class TaxiAgent(Agent):
    """Plays ``Taxi-v4``; an observation is row, column, passenger and destination in one number."""

    history = 0
    env_id = "Taxi-v4"
    title = "Taxi"
    description = "Fetch the passenger and take them where they want to go."
    picture = "|R: | : :G|\n| : | T : |\n| | : | : |\n|Y| : |B: |"
    action_names = ("south", "north", "east", "west", "pick up", "drop off")
    action_keys = {"s": 0, "w": 1, "d": 2, "a": 3, "p": 4, "o": 5}
    baselines = {"random": -771.1, "optimal": 7.93}
    """Exact mean returns over all starts; ``python -m benchmarks.world_baselines taxi`` computes them."""
    run_settings = {"generation.policy": "score"}
    """Chosen among what the taxi can do: a policy that generates learns from -10 for each refused action, long before
    its first passenger arrives, never to pick up or drop off."""

    def get_system_prompt(self) -> str:
        return (
            "You are playing Taxi. Go to the passenger, pick them up, go to the destination and drop them off. "
            'Reply with {"action": 0} to go south, {"action": 1} to go north, {"action": 2} to go east, '
            '{"action": 3} to go west, {"action": 4} to pick up or {"action": 5} to drop off.'
        )

    def format_observation(self, observation: Any) -> str:
        row, column, passenger, destination = fields(int(observation), SIZES)
        ways = [
            f"{name} {'road' if to != (row, column) else 'wall'}"
            for name, to in zip(self.action_names, ways_from((row, column)), strict=False)
        ]
        who = (
            "Passenger in the taxi" if passenger == IN_TAXI else f"Passenger at {_stand(passenger)}"
        )
        return f"Taxi at row {row}, column {column}: {', '.join(ways)}. {who}. Destination {_stand(destination)}."

    def draw(self, observation: Any) -> str:
        """The map with the taxi as ``T``, or as ``@`` once the passenger is in it."""
        row, column, passenger, destination = fields(int(observation), SIZES)
        lines = [list(line) for line in MAP]
        lines[row + 1][2 * column + 1] = "@" if passenger == IN_TAXI else "T"
        lines[2] += f"   passenger: {NAMES[passenger]}"
        lines[3] += f"   destination: {NAMES[destination]}"
        return "\n".join("".join(line) for line in lines)

    def expert(self, observation: Any) -> int:
        return self.first_actions(observation)[0]

    def first_actions(self, observation: Any) -> list[int]:
        """The first actions of all shortest ways to do it."""
        row, column, passenger, destination = fields(int(observation), SIZES)
        goal = STANDS[NAMES[destination if passenger == IN_TAXI else passenger]]
        if (here := (row, column)) == goal:
            return [DROP_OFF if passenger == IN_TAXI else PICK_UP]
        far = distances(goal)
        return [action for action, to in enumerate(ways_from(here)) if far[to] < far[here]]

    def policy_map(self) -> PolicyMap:
        """The way to each stand: to a passenger who waits there, and with one who wants to go there."""
        numbers = [str(number) for number in range(5)]
        panels = []
        for stand in range(4):
            for title, passenger, destination in (
                ("fetch", stand, (stand + 1) % 4),
                ("to", IN_TAXI, stand),
            ):
                states = [
                    [((row * 5 + column) * 5 + passenger) * 4 + destination for column in range(5)]
                    for row in range(5)
                ]
                panels.append(
                    Panel(f"{title} {NAMES[stand]}", numbers, numbers, states, "row", "column")
                )
        return PolicyMap(panels, signs="↓↑→←PD", best=self.first_actions)


def _stand(number: int) -> str:
    row, column = STANDS[NAMES[number]]
    return f"{NAMES[number]}, row {row}, column {column}"


def ways_from(here: Place) -> list[Place]:
    """Where each of the four moves leads; a wall leads nowhere."""
    found = []
    for down, right in MOVES:
        row, column = here[0] + down, here[1] + right
        is_open = MAP[here[0] + 1][2 * here[1] + 1 + right] != "|" and row in range(5)
        found.append((row, column) if is_open else here)
    return found


@cache
def distances(goal: Place) -> dict[Place, int]:
    found, frontier = {goal: 0}, deque([goal])
    while frontier:
        here = frontier.popleft()
        for to in ways_from(here):
            if to not in found:
                found[to] = found[here] + 1
                frontier.append(to)
    return found
