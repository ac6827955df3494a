"""Taxi-v4: fetch a passenger at a stand and take them to another one; an observation is one number below 500."""

from typing import Any

from llamagym_tui.agent import Drawing, Ground, Panel, Piece, PolicyMap, fields
from llamagym_tui.agents._tabular import TabularAgent

SIZES = (5, 5, 5, 4)
"""Values of row, column, place of the passenger and destination in an observation."""
SIZE = 5
"""Rows and columns of fields."""
PICK_UP, DROP_OFF = 4, 5
Place = tuple[int, int]
"""Row and column."""
STANDS: dict[str, Place] = {"red": (0, 0), "green": (0, 4), "yellow": (4, 0), "blue": (4, 3)}
NAMES = (*STANDS, "taxi")
"""Where the passenger may be."""
IN_TAXI = 4
"""Index into `NAMES` of a passenger who is in the taxi."""
WALLS: frozenset[Place] = frozenset({(0, 1), (1, 1), (3, 0), (3, 2), (4, 0), (4, 2)})
"""Each field with a wall on its right."""
MOVES = {"south": (1, 0), "north": (-1, 0), "east": (0, 1), "west": (0, -1)}
"""Change of row and column."""


class TaxiAgent(TabularAgent):
    """Plays ``Taxi-v4``; an observation is row, column, passenger and destination in one number."""

    env_id = "Taxi-v4"
    more_ids = "Taxi-v4$"
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
        ways = []
        for name in MOVES:
            ways.append(f"{name} {'wall' if _is_blocked(row, column, name) else 'road'}")
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
        pieces = {place: Piece(f" {name[0].upper()} ", "floor") for name, place in STANDS.items()}
        pieces[STANDS[NAMES[destination]]] = _marked(destination, ">{}<", "goal")
        where = "[@] passenger in the taxi"
        if not is_in:
            pieces[STANDS[NAMES[passenger]]] = _marked(passenger, "({})", "thing")
            where = f"( ) passenger at {NAMES[passenger]}"
        pieces[row, column] = Piece("[@]" if is_in else "[T]", "player")
        lines: list[str | list[str | Piece]] = []
        for line in range(SIZE):
            drawn: list[str | Piece] = ["│"]
            for at in range(SIZE):
                drawn.append(pieces.get((line, at), Piece(" · ", "floor")))
                is_open = (line, at) not in WALLS and at < SIZE - 1
                drawn.append(Piece(" ", "floor") if is_open else "│")
            lines.append(drawn)
        return [*lines, where, f"> < destination {NAMES[destination]}"]

    def policy_map(self) -> PolicyMap:
        """The fields under each errand, one at a time: every state that is not the end."""
        panels = []
        for passenger in range(len(NAMES)):
            for destination in range(len(STANDS)):
                if passenger != destination:
                    panels.append(_panel(passenger, destination))
        return PolicyMap(
            panels, signs="↓↑→←PD", best=self.first_actions, possible=possible, shows_one=True
        )


def possible(observation: Any) -> list[int]:
    """The actions that the environment's mask leaves: no move against a wall, and nobody at a wrong place."""
    row, column, passenger, _ = fields(int(observation), SIZES)
    found = [action for action, name in enumerate(MOVES) if not _is_blocked(row, column, name)]
    is_in = passenger == IN_TAXI
    if is_in and (row, column) in STANDS.values():
        found.append(DROP_OFF)
    if not is_in and STANDS[NAMES[passenger]] == (row, column):
        found.append(PICK_UP)
    return found


def _panel(passenger: int, destination: int) -> Panel:
    """Every field on which the taxi may be while passenger and destination stay where they are."""
    unnamed = [""] * SIZE
    states = [
        [((row * 5 + column) * 5 + passenger) * 4 + destination for column in range(SIZE)]
        for row in range(SIZE)
    ]
    title = f"{NAMES[passenger]} → {NAMES[destination]}"
    return Panel(title, unnamed, unnamed, states, walls=WALLS)


def _stand(stand: int) -> str:
    row, column = STANDS[NAMES[stand]]
    return f"{NAMES[stand]}, row {row}, column {column}"


def _marked(stand: int, form: str, ground: Ground) -> Piece:
    return Piece(form.format(NAMES[stand][0].upper()), ground)


def _is_blocked(row: int, column: int, move: str) -> bool:
    """True if a move leads against a wall or the edge."""
    down, right = MOVES[move]
    is_inside = 0 <= row + down < SIZE and 0 <= column + right < SIZE
    left_field = (row, min(column, column + right))
    return not is_inside or (right != 0 and left_field in WALLS)
