"""Kitchen-v0: fetch vegetables, chop them, put them on the plate, and serve what was ordered.

An action is a whole errand: walking there and the work take several steps, of which `action_steps` in the environment's
`info` counts each, so that the discount counts time. Rules and map are here; `_kitchen_env` makes a Gymnasium
environment of them.
"""

import math
from collections.abc import Mapping
from functools import cache
from itertools import product
from typing import Any, NamedTuple

from llamagym_tui.agent import Agent, Panel, PolicyMap, fields

MAP = ("#T#O#", "#   #", "X   B", "P   #", "##H##")
"""Tomatoes, onions, bin, board, plate and hatch."""
STANDS = {
    "tomatoes": (1, 1),
    "onions": (1, 3),
    "board": (2, 3),
    "plate": (3, 1),
    "hatch": (3, 2),
    "bin": (2, 1),
}
"""Row and column from which each is in reach, in the order of the actions that lead there."""
WORK = (1, 1, 3, 1, 1, 1)
"""Steps that each action takes where it leads."""
PLACES = tuple(STANDS)
ON_PLATE = ("nothing", "tomato", "onion", "tomato and onion")
SHORT = ("nothing", "tomato", "onion", "both")
HANDS = ("nothing", "raw tomato", "raw onion", "chopped tomato", "chopped onion")
SIZES = (len(ON_PLATE), len(PLACES), len(HANDS), len(ON_PLATE))
"""Of order, place, hands and plate in an observation."""
CHOP, PLATE, SERVE, THROW_AWAY = range(2, 6)
STEP_COST, PLATED, SERVED = 0.01, 0.2, 1.0
"""What a step costs, and what an ordered vegetable on the plate and the right dish earn."""


class State(NamedTuple):
    order: int
    """Index into `ON_PLATE`: what the dish has to be."""
    place: int
    hands: int
    plate: int

    @property
    def number(self) -> int:
        return ((self.order * len(PLACES) + self.place) * len(HANDS) + self.hands) * len(
            ON_PLATE
        ) + self.plate

    @property
    def possible(self) -> tuple[bool, ...]:
        """Of each action, whether it can be done."""
        free = self.hands == 0
        return (free, free, 0 < self.hands < 3, self.hands > 2, free and self.plate > 0, not free)


class Errand(NamedTuple):
    state: State
    steps: int
    reward: float
    is_over: bool


def state_of(observation: Any) -> State:
    return State(*fields(int(observation), SIZES))


def errand(state: State, action: int) -> Errand:
    """What an action leads to; one that cannot be done is a lost step."""
    if not state.possible[action]:
        return Errand(state, 1, -STEP_COST, False)
    steps, place = WORK[action], state.place
    if action == SERVE:  # by way of the plate, which takes a step to take
        steps, place = steps + distance(place, PLATE) + 1, PLATE
    steps += distance(place, action)
    new = state.hands - 2 if action == PLATE else 0
    hands = (1, 2, state.hands + 2, 0, 0, 0)[action]
    earned = PLATED * bool(new & state.order & ~state.plate) + SERVED * (
        action == SERVE and state.plate == state.order
    )
    after = State(state.order, action, hands, state.plate | new)
    return Errand(after, steps, earned - STEP_COST * steps, action == SERVE)


def distance(place: int, other: int) -> int:
    return sum(
        abs(here - there)
        for here, there in zip(STANDS[PLACES[place]], STANDS[PLACES[other]], strict=True)
    )


def states() -> list[State]:
    """Every state, in the order of their numbers; an order of nothing never comes up."""
    return [State(*values) for values in product(*map(range, SIZES))]


def steps_left(state: State, least: Mapping[State, float]) -> list[float]:
    """By first action, the steps until the right dish is served; infinite where it cannot be any more."""
    ways = [errand(state, action) for action in range(len(PLACES))]
    return [
        way.steps + (least[way.state] if not way.is_over else 0 if way.reward > 0 else math.inf)
        for way in ways
    ]


@cache
def least_steps() -> dict[State, float]:
    found = dict.fromkeys(states(), math.inf)
    while (better := {state: min(steps_left(state, found)) for state in found}) != found:
        found = better
    return found


class KitchenAgent(Agent):
    """Plays ``Kitchen-v0``; an observation is order, place, hands and plate in one number."""

    history = 0
    env_id = "llamagym_tui.agents._kitchen_env:Kitchen-v0"
    title = "Kitchen"
    description = "Cook what was ordered: fetch, chop, plate, serve."
    picture = " #  T  #  O  #\n X     @     B\n P           #\n #  #  H  #  #"
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

    def draw(self, observation: Any) -> str:
        """The map with the cook as ``@``: T tomatoes, O onions, B board, P plate, H hatch, X bin."""
        order, place, hands, plate = state_of(observation)
        lines = [list(line) for line in MAP]
        row, column = STANDS[PLACES[place]]
        lines[row][column] = "@"
        words = (
            "",
            f"order: {ON_PLATE[order]}",
            f"plate: {ON_PLATE[plate]}",
            f"hands: {HANDS[hands]}",
            "",
        )
        return "\n".join(
            f"{' '.join(line)}   {word}".rstrip() for line, word in zip(lines, words, strict=True)
        )

    def expert(self, observation: Any) -> int | None:
        """The first action of a quickest way to the right dish; None where there is none any more."""
        return next(iter(self.first_actions(observation)), None)

    def first_actions(self, observation: Any) -> list[int]:
        """The first actions of all quickest ways."""
        state = state_of(observation)
        found, least = steps_left(state, least_steps()), least_steps()[state]
        return [action for action, steps in enumerate(found) if steps == least < math.inf]

    def policy_map(self) -> PolicyMap:
        """What is done at the plate, by what is on it and in the hands."""
        panels = []
        for order in range(1, len(ON_PLATE)):
            cells = [
                [State(order, PLATE, hands, on).number for on in range(len(ON_PLATE))]
                for hands in range(len(HANDS))
            ]
            rows = [words.replace("chopped", "cut") for words in HANDS]
            panels.append(
                Panel(SHORT[order], rows, ["-", "T", "O", "T+O"], cells, "hands", "plate")
            )
        return PolicyMap(
            panels, signs="TOCPSX", best=self.first_actions, noun="possible states at the plate"
        )
