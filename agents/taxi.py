"""Taxi-v4: fetch a passenger at a stand and take them to another one; an observation is one number below 500."""

from collections import deque
from functools import cache
from typing import Any

from llamagym_tui.agent import Agent, Drawing, Ground, Panel, Piece, PolicyMap, fields

MAP = (
    "+---------+",
    "|R: | : :G|",
    "| : | : : |",
    "| : : : : |",
    "| | : | : |",
    "|Y| : |B: |",
    "+---------+",
)
"""Gymnasium's own map."""
SIZES = (5, 5, 5, 4)
"""Values of row, column, place of the passenger and destination in an observation."""
SIZE = 5
"""Rows and columns of fields."""
STANDS = {"red": (0, 0), "green": (0, 4), "yellow": (4, 0), "blue": (4, 3)}
"""Row and column of each stand."""
SIGNS = {place: name[0].upper() for name, place in STANDS.items()}
"""The letter of each stand, by its place."""
NAMES = (*STANDS, "taxi")
"""Where the passenger may be."""
IN_TAXI = 4
"""Index into `NAMES` of a passenger who is in the taxi."""
MOVES = ((1, 0), (-1, 0), (0, 1), (0, -1))
"""Change of row and column by each of the first four actions."""
PICK_UP = 4
DROP_OFF = 5
Place = tuple[int, int]
"""Row and column."""
# On the map a field is at (row + 1, 2 column + 1), with what is between it and its neighbours beside it.
WALLS: frozenset[Place] = frozenset(
    (row, column)
    for row in range(SIZE)
    for column in range(SIZE - 1)
    if MAP[row + 1][2 * column + 2] == "|"
)
"""Each field with a wall on its right."""


class TaxiAgent(Agent):
    """Plays ``Taxi-v4``; an observation is row, column, passenger and destination in one number."""

    history = 0
    directions = 512
    env_id = "Taxi-v4"
    title = "Taxi"
    description = "Fetch the passenger and take them where they want to go."
    action_names = ("south", "north", "east", "west", "pick up", "drop off")
    action_keys = {"s": 0, "w": 1, "d": 2, "a": 3, "p": 4, "o": 5}
    baselines = {"random": -771.1, "optimal": 7.93}
    """Exact mean returns over all starts; ``python -m benchmarks.world_baselines taxi`` computes them."""
    run_settings = {"generation.policy": "score"}
    """The policy chooses among the actions that the taxi can do. One that generates would get -10 for each refused
    action, and so learn never to pick up or drop off, long before its first passenger arrives."""

    def get_system_prompt(self) -> str:
        return (
            "You are playing Taxi. Go to the passenger, pick them up, go to the destination and drop them off. "
            'Reply with {"action": 0} to go south, {"action": 1} to go north, {"action": 2} to go east, '
            '{"action": 3} to go west, {"action": 4} to pick up or {"action": 5} to drop off.'
        )

    def format_observation(self, observation: Any) -> str:
        row, column, passenger, destination = fields(int(observation), SIZES)
        here = (row, column)
        ways = []
        for name, to in zip(self.action_names, ways_from(here), strict=False):
            ways.append(f"{name} wall" if to == here else f"{name} road")
        who = "Passenger in the taxi"
        if passenger != IN_TAXI:
            who = f"Passenger at {_stand(passenger)}"
        return f"Taxi at row {row}, column {column}: {', '.join(ways)}. {who}. Destination {_stand(destination)}."

    def describe_turn(self, observation: Any, action: Any, reward: float) -> str:
        row, column, passenger, _ = fields(int(observation), SIZES)
        return f"row {row}, column {column}{', taken in' if passenger == IN_TAXI else ''}"

    def draw(self, observation: Any) -> Drawing:
        """The fields with their walls: the taxi in brackets, a waiting passenger in parentheses, the destination
        between arrows."""
        row, column, passenger, destination = fields(int(observation), SIZES)
        is_in = passenger == IN_TAXI
        special: dict[Place, tuple[str, Ground]] = {STANDS[NAMES[destination]]: (">{}<", "goal")}
        if not is_in:
            special[STANDS[NAMES[passenger]]] = ("({})", "thing")
        special[row, column] = ("[{}]", "player")
        lines: list[list[str | Piece]] = []
        for line in range(SIZE):
            pieces: list[str | Piece] = ["│"]
            for place in ((line, each) for each in range(SIZE)):
                form, ground = special.get(place, (" {} ", "floor"))
                sign = SIGNS.get(place, "·")
                if place == (row, column):
                    sign = "@" if is_in else "T"
                is_open = place not in WALLS and place[1] < SIZE - 1
                pieces += [
                    Piece(form.format(sign), ground),
                    Piece(" ", "floor") if is_open else "│",
                ]
            lines.append(pieces)
        where = "[@] passenger in the taxi" if is_in else f"( ) passenger at {NAMES[passenger]}"
        return [*lines, where, f"> < destination {NAMES[destination]}"]

    def expert(self, observation: Any) -> int:
        """The first of the best actions."""
        return self.first_actions(observation)[0]

    def first_actions(self, observation: Any) -> list[int]:
        """The first actions of all shortest ways to bring the passenger to their destination."""
        row, column, passenger, destination = fields(int(observation), SIZES)
        here = (row, column)
        if passenger == IN_TAXI:
            goal = STANDS[NAMES[destination]]
            at_goal = DROP_OFF
        else:
            goal = STANDS[NAMES[passenger]]
            at_goal = PICK_UP
        if here == goal:
            return [at_goal]
        far = distances(goal)
        return [action for action, to in enumerate(ways_from(here)) if far[to] < far[here]]

    def policy_map(self) -> PolicyMap:
        """The way to each stand: to a passenger who waits there, and with one who wants to go there."""
        panels = []
        for stand in range(4):
            elsewhere = (stand + 1) % 4
            letter = SIGNS[STANDS[NAMES[stand]]]
            panels.append(_panel(f"get {letter}", stand, elsewhere))
            panels.append(_panel(f"to {letter}", IN_TAXI, stand))
        return PolicyMap(panels, signs="↓↑→←PD", best=self.first_actions)


def _panel(title: str, passenger: int, destination: int) -> Panel:
    """Every field on which the taxi may be while passenger and destination stay where they are."""
    numbers = [str(number) for number in range(5)]
    states = [
        [((row * 5 + column) * 5 + passenger) * 4 + destination for column in range(5)]
        for row in range(5)
    ]
    return Panel(title, numbers, numbers, states, "row", "column", WALLS)


def _stand(number: int) -> str:
    row, column = STANDS[NAMES[number]]
    return f"{NAMES[number]}, row {row}, column {column}"


def ways_from(here: Place) -> list[Place]:
    """Where each of the four moves leads; at a wall, the taxi stays where it is."""
    row, column = here
    found = []
    for down, right in MOVES:
        to = (row + down, column + right)
        is_inside = 0 <= to[0] < SIZE and 0 <= to[1] < SIZE
        # A wall stands right of the left one of two fields.
        is_walled = right != 0 and min(here, to) in WALLS
        found.append(to if is_inside and not is_walled else here)
    return found


@cache
def distances(goal: Place) -> dict[Place, int]:
    """The fewest moves from every field to the goal, found from the goal outwards."""
    found = {goal: 0}
    frontier = deque([goal])
    while frontier:
        here = frontier.popleft()
        for to in ways_from(here):
            if to not in found:
                found[to] = found[here] + 1
                frontier.append(to)
    return found
