"""Lessons in made-up worlds: the format of a reply and simple instructions, for environments yet to come.

A world has two to six named actions and shows its state as a grid position or as numbers. Half of the prompts are the
generic agent's own, as it makes them for any Gymnasium id; the others are as a user's agent file might word them.
"""

from __future__ import annotations

import random

from llamagym_tui.agents.generic import GenericAgent
from scripts.bundled_model.lessons import Exchange, Lesson

GENERIC = GenericAgent()
NAMES = (
    "left", "right", "up", "down", "north", "south", "east", "west", "wait", "stay", "jump", "push", "pull",
    "pick up", "drop off", "open", "close", "turn left", "turn right", "forward", "accelerate", "brake", "noop", "fire",
    "take", "look", "go", "stop", "buy", "sell", "0", "1", "2", "3", "4", "5",
)  # fmt: skip
PLACES = (
    "FrozenLake", "CliffWalking", "Taxi", "CartPole", "MountainCar", "Acrobot", "a maze", "a grid world",
    "a frozen lake", "a cliff", "a game", "a puzzle", "LunarLander", "MiniGrid", "TextWorld",
)  # fmt: skip
GOALS = (
    "Reach the goal.", "Reach the goal without falling into a hole.", "Keep the pole upright.", "Get to the end.",
    "Collect as much reward as you can.", "Avoid the cliff.", "Bring the passenger to the destination.", "Win.", "",
)  # fmt: skip


def lesson(rng: random.Random, conversations: int) -> Lesson:
    """A world, with an instruction or without one."""
    names = rng.sample(NAMES, rng.randint(2, 6))
    prompt = _generic_prompt(rng, names) if rng.random() < 0.5 else _worded_prompt(rng, names)
    size = rng.randint(3, 8)
    kind = rng.choice(("free", "always", "column", "row"))
    chosen, other = rng.sample(range(len(names)), 2)
    limit = rng.randint(1, size - 1)
    if kind == "always":
        prompt += f" Always choose {chosen}."
    elif kind in ("column", "row"):
        prompt += f" If the {kind} is below {limit} choose {chosen}, else choose {other}."

    def exchange(turn: int) -> Exchange:
        row, column = rng.randrange(size), rng.randrange(size)
        if kind == "free":
            action = rng.randrange(len(names))
        elif kind == "always":
            action = chosen
        else:
            action = chosen if (column if kind == "column" else row) < limit else other
        observation = _grid(rng, row, column, size) if kind in ("column", "row") else _anything(rng, row, column, size)
        return Exchange(observation, GENERIC.format_action(action))

    return Lesson(prompt, [[exchange(turn) for turn in range(rng.randint(1, 4))] for _ in range(conversations)])


def _generic_prompt(rng: random.Random, names: list[str]) -> str:
    agent = GenericAgent()
    agent.title, agent.action_names = rng.choice(PLACES), tuple(names)  # type: ignore[misc]
    if rng.random() < 0.5:
        agent.action_names = tuple(str(index) for index in range(len(names)))  # type: ignore[misc]
    return agent.get_system_prompt()


def _worded_prompt(rng: random.Random, names: list[str]) -> str:
    choices = [f'{{"action": {index}}} to {name}' for index, name in enumerate(names)]
    form = ", ".join(choices[:-1]) + (" or " if rng.random() < 0.7 else ", ") + choices[-1]
    return f"You are playing {rng.choice(PLACES)}. {rng.choice(GOALS)} Reply with {form}."


def _grid(rng: random.Random, row: int, column: int, size: int) -> str:
    forms = (
        "Row: {r}. Column: {c}.",
        "You are at row {r}, column {c}.",
        "You are at row {r}, column {c}. The goal is at row {g}, column {g}.",
    )
    return rng.choice(forms).format(r=row, c=column, g=size - 1)


def _anything(rng: random.Random, row: int, column: int, size: int) -> str:
    if rng.random() < 0.4:
        return _grid(rng, row, column, size)
    if rng.random() < 0.5:
        return GENERIC.format_observation(rng.randrange(500))
    return GENERIC.format_observation([round(rng.uniform(-3, 3), 4) for _ in range(rng.randint(1, 6))])
