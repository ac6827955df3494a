"""Lessons in made-up worlds: features with names, actions with names, and instructions that name both.

Half of the prompts are the generic agent's own, as it makes them for any Gymnasium id; the others are as a user's agent
file might word them. Without an instruction actions are drawn at random: what to do is left to PPO.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llamagym_tui.agents.generic import GenericAgent
from scripts.bundled_model.conditions import Numbers, State
from scripts.bundled_model.instructions import Instruction, always, either, follow, report, stepwise
from scripts.bundled_model.lessons import MOST_VALUES, Chance, Exchange, Lesson

GENERIC = GenericAgent()
ACTIONS = (
    "left", "right", "up", "down", "north", "south", "east", "west", "wait", "stay", "jump", "push", "pull",
    "pick up", "drop off", "open", "close", "turn left", "turn right", "forward", "accelerate", "brake", "noop", "fire",
    "take", "look", "go", "stop", "buy", "sell", "hit", "stick", "push left", "push right", "go left", "go right",
    "go up", "go down", "clockwise", "counterclockwise", "chop", "cook", "serve", "toggle", "drop", "move", "rest",
    "bet", "fold", "call", "raise", "sow", "reap", "feed", "eat", "drink", "attack", "defend", "heal", "hide",
)  # fmt: skip
FEATURES = (
    "position", "speed", "angle", "spin", "row", "column", "total", "height", "distance", "x", "y", "z", "health",
    "score", "fuel", "time", "level", "heat", "wind", "price", "stock", "energy", "lap", "dealer", "enemy", "target",
    "goal row", "goal column", "cos", "sin", "pressure", "light", "weight", "money", "food", "water", "wood", "gold",
    "depth", "radius", "turn", "tilt", "joint angle", "joint spin", "card", "dice", "floor", "age", "rain", "load",
)  # fmt: skip
THINGS = (
    "hole", "ice", "goal", "wall", "road", "cliff", "edge", "ground", "key", "door", "ball", "box", "fire", "water",
    "tree", "enemy", "food", "coin", "nothing", "red", "green", "blue", "yellow", "grey", "open", "closed", "yes", "no",
    "empty", "lava", "tomato", "plate", "knife", "pot", "lamp", "chest", "milk", "apple", "passenger", "taxi",
)  # fmt: skip
SLOTS = (
    "ace",
    "door",
    "passenger",
    "weather",
    "lamp",
    "hand",
    "sky",
    "north side",
    "south side",
    "ahead",
    "behind",
)
PLACES = (
    "Frozen Lake", "Cliff Walking", "Taxi", "Cart Pole", "Mountain Car", "Acrobot", "a maze", "a grid world", "a game",
    "a cliff", "a puzzle", "Lunar Lander", "MiniGrid", "TextWorld", "a kitchen", "a farm", "a shop", "a race", "a duel",
    "CartPole-v1", "CliffWalking-v1", "MountainCar-v0", "a lift", "a bandit", "a thermostat", "a market", "a card game",
)  # fmt: skip
GOALS = (
    "Reach the goal.", "Reach the goal without falling into a hole.", "Keep the pole upright.", "Get to the end.",
    "Collect as much reward as you can.", "Avoid the cliff.", "Bring the passenger to the destination.", "Win.", "",
    "Numbers go from 0 to 99.", "Swing up.", "Stay near the middle.", "Earn more than you spend.",
    "Do it in few steps.",
)  # fmt: skip
REASONS = (
    "because {x} is {v}", "{x} is {v}", "{x} {v} is low", "{x} {v} is high", "since {x} is {v}, I {a}",
    "{a}, as {x} is {v}",
    "I see {x} {v}, so {a}", "{x} is {v}. So {a}.", "I {a}.", "as {x} is only {v}", "{v} is good",
    "I think {a} is best",
    "Because {x} is {v}.", "{x} shows {v}, {a}!", "{a} is right here because {x} is {v}.", "with {v} I {a}",
)  # fmt: skip
"""What a person writes before an action."""
REASONED = (
    "Give a reason first.",
    "Think first.",
    "Say why, then act.",
    "First a short reason.",
    "Explain your choice.",
)
REASONED_SHARE = 0.05
NO_CHANGE = 0.12
"""Share of lessons without an instruction."""
REPORTS = 0.15


EASY_ACTIONS = (1, 1, 1, 0, 0)
INVENTED = 0.15
"""Share of worlds whose actions, and of those whose numbers, have names that mean nothing: any name has to do."""


def invented(rng: Chance, count: int) -> list[str]:
    """Names of two or three syllables, all different."""
    names: set[str] = set()
    while len(names) < count:
        names.add(
            "".join(
                rng.choice("bdfghklmnprstvwz") + rng.choice("aeiou")
                for _ in range(rng.randint(2, 3))
            )
        )
    return sorted(names)


class World:
    """What there is to see and to do; an easy one has up to three numbers and few actions."""

    def __init__(self, rng: Chance, *, easy: bool = False) -> None:
        self.names = rng.sample(
            ACTIONS, rng.choices((2, 3, 4, 5, 6), EASY_ACTIONS if easy else (8, 4, 4, 1, 1))[0]
        )
        if not easy and rng.random() < INVENTED:
            self.names = invented(rng, len(self.names))
        elif rng.random() < (0.4 if easy else 0.2):
            self.names = [str(index) for index in range(len(self.names))]
        self.around = not easy and rng.random() < 0.25 and not self.names[0].isdigit()
        count = (
            rng.choice((1, 3)) if easy else rng.choices(range(1, 9), (2, 5, 4, 5, 2, 2, 1, 1))[0]
        )
        unnamed = not easy and rng.random() < 0.08
        ordinals = ("first number", "second number", "third number", "fourth number")
        features = list(ordinals[: min(count, 4)]) if unnamed else rng.sample(FEATURES, count)
        if not (easy or unnamed) and rng.random() < INVENTED:
            features = invented(rng, count)
        self.unnamed = unnamed
        whole = rng.random() < 0.75
        self.ranges = {name: (0, 99) if whole else self._range(rng) for name in features}
        self.words: dict[str, Sequence[str]] = {}
        if self.around:
            kinds = rng.sample(THINGS, rng.randint(2, 4))
            self.words = dict.fromkeys(self.names, kinds)
        elif not easy and rng.random() < 0.25:
            self.words = {
                name: rng.sample(THINGS, rng.randint(2, 3))
                for name in rng.sample(SLOTS, rng.randint(1, 2))
            }
        self.features = Numbers(self.ranges, self.words)
        self.shown = rng.of(FORMS_OF_UNNAMED if unnamed else FORMS)

    @staticmethod
    def _range(rng: Chance) -> tuple[int, int]:
        return rng.choice(
            ((0, 4), (0, 7), (1, 10), (4, 21), (0, 11), (0, 20), (0, 50), (1, 6), (0, 99))
        )

    def state(self, rng: Chance) -> State:
        numbers = {name: rng.randint(*bounds) for name, bounds in self.ranges.items()}
        return numbers | {name: rng.choice(kinds) for name, kinds in self.words.items()}

    def values(self, state: State) -> tuple[str, ...]:
        return tuple(str(value) for value in state.values())[:MOST_VALUES]


def _cap(text: str) -> str:
    return text[:1].upper() + text[1:]


FORMS: tuple[Callable[[State], str], ...] = (
    lambda state: _cap(", ".join(f"{name} {value}" for name, value in state.items())) + ".",
    lambda state: _cap(", ".join(f"{name} {value}" for name, value in state.items())) + ".",
    lambda state: "Observation: " + ", ".join(f"{name} {value}" for name, value in state.items()),
    lambda state: "Observation: " + ", ".join(f"{name} {value}" for name, value in state.items()),
    lambda state: " ".join(f"{_cap(name)}: {value}." for name, value in state.items()),
    lambda state: "; ".join(f"{name}: {value}" for name, value in state.items()),
    lambda state: " ".join(f"The {name} is {value}." for name, value in state.items()),
    lambda state: (
        "You are at " + ", ".join(f"{name} {value}" for name, value in state.items()) + "."
    ),
    lambda state: ", ".join(f"{name}={value}" for name, value in state.items()),
    lambda state: "\n".join(f"{name}: {value}" for name, value in state.items()),
    lambda state: "Your " + ", ".join(f"{name} is {value}" for name, value in state.items()) + ".",
)
FORMS_OF_UNNAMED: tuple[Callable[[State], str], ...] = (
    lambda state: "Observation: " + ", ".join(str(value) for value in state.values()),
    lambda state: ", ".join(str(value) for value in state.values()),
    lambda state: " ".join(str(value) for value in state.values()),
)


def instruction(rng: Chance, world: World, *, easy: bool = False) -> Instruction:
    roll = rng.random()
    if roll < REPORTS:
        return report(rng, world.features)
    if roll < 0.3 and world.around:
        return follow(rng, world.words, world.names)
    if not easy and roll < 0.4 and len(world.names) > 2:
        return stepwise(rng, world.features, world.names)
    if roll < (0.3 if easy else 0.5):
        return always(rng, world.names)
    kind = rng.choice(("below", "from")) if easy else ""
    return either(rng, world.features, world.names, kind=kind)


def lesson(rng: Chance, conversations: int, *, easy: bool = False) -> Lesson:
    """A world, with an instruction or without one; then, mostly, questions about what was seen."""
    world = World(rng, easy=easy)
    told = None if not easy and rng.random() < NO_CHANGE else instruction(rng, world, easy=easy)
    prompt = prompt_of(rng, world.names)
    if told is not None:
        prompt = joined(rng, prompt, told.text)

    if reasoned := not easy and rng.random() < REASONED_SHARE:
        prompt += f" {rng.choice(REASONED)}"

    def exchange() -> tuple[State, Exchange]:
        state = drawn(rng, world, told)
        action = rng.randrange(len(world.names)) if told is None else told.act(state)
        reply = GENERIC.format_action(action)
        if reasoned and action < len(world.names):
            x, v = rng.choice(list(state.items()))
            reply = f"{rng.choice(REASONS).format(x=x, v=v, a=world.names[action])} {reply}"
        shown = world.shown(state)
        if told is None or reasoned:
            return state, Exchange(shown, reply, world.values(state))
        return state, Exchange(
            shown, reply, world.values(state), told.hints(state), told.marks(shown, state)
        )

    def question(state: State) -> Exchange:
        """An instruction for this state alone, in the place of an observation."""
        wanted = rng.random() < 0.5
        for _ in range(6):
            asked = instruction(rng, world, easy=easy)
            if asked.told is None or asked.told(state) == wanted:
                break
        return Exchange(
            asked.text,
            GENERIC.format_action(asked.act(state)),
            (),
            asked.hints(state),
            asked.own_marks(asked.text, state),
        )

    def conversation() -> list[Exchange]:
        state, first = exchange()
        if questions:
            return [first, *(question(state) for _ in range(questions))]
        return [first, *(exchange()[1] for _ in range(turns - 1))]

    questions = rng.randint(2, 4) if rng.random() < 0.3 else 0
    turns = 1 if easy or rng.random() < 0.8 else rng.randint(2, 3)
    marks = () if told is None else told.own_marks(prompt)
    return Lesson(prompt, [conversation() for _ in range(conversations)], marks)


def drawn(rng: Chance, world: World, told: Instruction | None) -> State:
    """A state, on either side of what decides about as often."""
    state = world.state(rng)
    if told is None or told.told is None:
        return state
    wanted = rng.random() < 0.5
    for _ in range(12):
        if told.told(state) == wanted:
            break
        state = world.state(rng)
    return state


def joined(rng: Chance, prompt: str, told: str) -> str:
    """The instruction behind the prompt, mostly; now and then before it."""
    roll = rng.random()
    return f"{told} {prompt}" if roll < 0.1 else f"{prompt} {told}"


def prompt_of(rng: Chance, names: Sequence[str]) -> str:
    return rng.of((_worded_prompt, _generic_prompt))(rng, names)


def _generic_prompt(rng: Chance, names: Sequence[str]) -> str:
    agent = GenericAgent()
    agent.title = rng.of(PLACES)  # type: ignore[misc]
    agent.action_names = tuple(names)  # type: ignore[misc]
    return agent.get_system_prompt()


def _worded_prompt(rng: Chance, names: Sequence[str]) -> str:
    choices = [f'{{"action": {index}}} to {name}' for index, name in enumerate(names)]
    form = ", ".join(choices[:-1]) + (" or " if rng.random() < 0.7 else ", ") + choices[-1]
    return f"You are playing {rng.of(PLACES)}. {rng.of(GOALS)} Reply with {form}.".replace(
        "  ", " "
    )
