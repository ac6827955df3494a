"""Kitchen-v0: fetch vegetables, chop them, put them on the plate, and serve what was ordered.

An action is a whole errand: the walk and the work take several steps. `action_steps` in the environment's `info` says
how many, so that the discount goes by the time that passes. Rules and map are here; `_kitchen_env` makes a Gymnasium
environment of them.
"""

from typing import Any, NamedTuple

from llamagym_tui.agent import Drawing, Ground, Panel, Piece, PolicyMap, fields
from llamagym_tui.agents._tabular import TabularAgent

MAP = (
    "┌── T ─── O ──┐",
    "│             │",
    " X           B ",
    " P            │",
    "└───── H ─────┘",
)
"""The kitchen from above, with tomatoes, onions, bin, board, plate and hatch; three characters are a field."""
GROUNDS: dict[str, Ground] = {
    "": "floor", "T": "thing", "O": "thing", "B": "thing", "P": "thing", "X": "danger", "H": "goal",
}  # fmt: skip
"""The ground of a field, for its colour; walls have none."""
STANDS = {
    "tomatoes": (1, 1),
    "onions": (1, 3),
    "board": (2, 3),
    "plate": (3, 1),
    "hatch": (3, 2),
    "bin": (2, 1),
}
"""The field, as row and column, from which each place is in reach; an action leads to the place of its index."""
WORK = (1, 1, 3, 1, 1, 1)
"""Steps of work that each action takes once one is there."""
PLACES = tuple(STANDS)
ON_PLATE = ("nothing", "tomato", "onion", "tomato and onion")
"""Contents of the plate; in the index, bit 1 is a tomato and bit 2 an onion."""
SHORT = ("nothing", "tomato", "onion", "both")
"""The same in one word."""
HANDS = ("nothing", "raw tomato", "raw onion", "chopped tomato", "chopped onion")
"""Contents of the cook's hands; chopping adds 2 to the index."""
SIZES = (len(ON_PLATE), len(PLACES), len(HANDS), len(ON_PLATE))
"""Values of order, place, hands and plate in an observation."""
GET_TOMATO = 0
GET_ONION = 1
CHOP = 2
PLATE = 3
SERVE = 4
THROW_AWAY = 5
STEP_COST = 0.01
"""Cost of a step."""
PLATED = 0.2
"""The reward for an ordered vegetable on the plate."""
SERVED = 1.0
"""The reward for serving the right dish."""


class State(NamedTuple):
    """The state of the kitchen between two errands."""

    order: int
    """Index into `ON_PLATE`: what the dish has to be."""
    place: int
    """Index into `PLACES`: where the cook stands."""
    hands: int
    """Index into `HANDS`."""
    plate: int
    """Index into `ON_PLATE`."""

    @property
    def number(self) -> int:
        """The state as one number, which is the observation; the plate counts fastest."""
        number = self.order
        number = number * len(PLACES) + self.place
        number = number * len(HANDS) + self.hands
        return number * len(ON_PLATE) + self.plate

    @property
    def possible(self) -> tuple[bool, ...]:
        """True for each action that can be done, by index."""
        hands_are_free = self.hands == 0
        has_raw = self.hands in (1, 2)
        has_chopped = self.hands in (3, 4)
        can_serve = hands_are_free and self.plate > 0
        return (
            hands_are_free,
            hands_are_free,
            has_raw,
            has_chopped,
            can_serve,
            not hands_are_free,
        )


class Errand(NamedTuple):
    """The result of an action."""

    state: State
    steps: int
    reward: float
    is_over: bool


def state_of(observation: Any) -> State:
    """The state that an observation is the number of."""
    order, place, hands, plate = fields(int(observation), SIZES)
    return State(order, place, hands, plate)


def errand(state: State, action: int) -> Errand:
    """The result of an action; one that cannot be done is a lost step."""
    if not state.possible[action]:
        return Errand(state, 1, -STEP_COST, False)
    steps = WORK[action]
    place = state.place
    if action == SERVE:  # the cook walks to the plate first and takes it, which is a step more
        steps += distance(place, PLATE) + 1
        place = PLATE
    steps += distance(place, action)
    hands = 0
    plate = state.plate
    reward = 0.0
    if action == GET_TOMATO:
        hands = HANDS.index("raw tomato")
    elif action == GET_ONION:
        hands = HANDS.index("raw onion")
    elif action == CHOP:
        hands = state.hands + 2
    elif action == PLATE:
        vegetable = state.hands - 2  # 1 for a tomato, 2 for an onion: a bit of the plate
        if vegetable & state.order and not vegetable & plate:
            reward = PLATED
        plate |= vegetable
    elif action == SERVE and plate == state.order:
        reward = SERVED
    after = State(state.order, action, hands, plate)
    return Errand(after, steps, reward - STEP_COST * steps, action == SERVE)


def distance(place: int, other: int) -> int:
    """Steps from one place to another."""
    row, column = STANDS[PLACES[place]]
    other_row, other_column = STANDS[PLACES[other]]
    return abs(row - other_row) + abs(column - other_column)


class KitchenAgent(TabularAgent):
    """Plays ``Kitchen-v0``; an observation is order, place, hands and plate in one number."""

    discount = 1.0
    """The quickest ways to the right dish or, where that is spoilt, to the end."""
    env_id = "llamagym_tui.agents._kitchen_env:Kitchen-v0"
    title = "Kitchen"
    description = "Cook what was ordered: fetch, chop, plate, serve."
    action_names = ("get tomato", "get onion", "chop", "plate", "serve", "throw away")
    action_keys = {"t": 0, "o": 1, "c": 2, "p": 3, "s": 4, "x": 5}
    baselines = {"random": -0.2121, "optimal": 1.0761}
    """Exact mean returns within 20 turns; ``python -m benchmarks.world_baselines kitchen`` computes them."""
    run_settings = {"ppo.gamma": 0.99}
    """Errands differ in time, which counts although episodes have few of them."""

    def get_system_prompt(self) -> str:
        return (
            "You are a cook. Serve exactly what was ordered, in little time. Get what the order needs, chop it, put it "
            'on the plate, then serve. Reply with {"action": 0} to get tomato, {"action": 1} to get onion, '
            '{"action": 2} to chop, {"action": 3} to plate, {"action": 4} to serve or {"action": 5} to throw away.'
        )

    def format_observation(self, observation: Any) -> str:
        order, place, hands, plate = state_of(observation)
        return (
            f"Order: {ON_PLATE[order]}. Plate: {ON_PLATE[plate]}. Hands: {HANDS[hands]}. "
            f"You stand at the {PLACES[place]}."
        )

    def draw(self, observation: Any) -> Drawing:
        """The room with the cook as ``@``: T tomatoes, O onions, B board, P plate, H hatch, X bin."""
        order, place, hands, plate = state_of(observation)
        room = []
        for line in MAP:
            pieces = [line[at : at + 3] for at in range(0, len(line), 3)]
            room.append([Piece(field, GROUNDS.get(field.strip(), "")) for field in pieces])
        row, column = STANDS[PLACES[place]]
        room[row][column] = Piece("[@]", "player")
        return [
            *room,
            f"order: {ON_PLATE[order]}",
            f"plate: {ON_PLATE[plate]}",
            f"hands: {HANDS[hands]}",
        ]

    def policy_map(self) -> PolicyMap:
        """The policy at the plate, by the contents of plate and hands."""
        rows = [words.replace("chopped", "cut") for words in HANDS]
        panels = []
        for order in (1, 2, 3):
            cells = [
                [State(order, PLATE, hands, plate).number for plate in range(4)]
                for hands in range(len(HANDS))
            ]
            panels.append(
                Panel(SHORT[order], rows, ["-", "T", "O", "T+O"], cells, "hands", "plate")
            )
        return PolicyMap(
            panels, signs="TOCPSX", best=self.first_actions, noun="possible states at the plate"
        )
