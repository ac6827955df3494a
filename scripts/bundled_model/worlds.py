"""Lessons in made-up worlds: the format of a reply and simple instructions, for environments yet to come.

A world has two to six named actions and tells its state as a grid position or as numbers. Prompts have the form that
the generic agent gives any Gymnasium id.
"""

from __future__ import annotations

import json
import random

from scripts.bundled_model.lessons import Exchange, Lesson

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
    choices = [f'{{"action": {index}}} to {name}' for index, name in enumerate(names)]
    form = ", ".join(choices[:-1]) + (" or " if rng.random() < 0.7 else ", ") + choices[-1]
    prompt = f"You are playing {rng.choice(PLACES)}. {rng.choice(GOALS)} Reply with {form}."
    size = rng.randint(3, 8)
    kind = rng.choice(("free", "always", "column", "row"))
    chosen, other = rng.sample(range(len(names)), 2)
    limit = rng.randint(1, size - 1)
    if kind == "always":
        prompt += f" Always choose {names[chosen]}."
    elif kind in ("column", "row"):
        prompt += f" If the {kind} is below {limit} choose {names[chosen]}, else choose {names[other]}."

    def exchange(turn: int) -> Exchange:
        row, column = rng.randrange(size), rng.randrange(size)
        if kind == "free":
            action = rng.randrange(len(names))
        elif kind == "always":
            action = chosen
        else:
            action = chosen if (column if kind == "column" else row) < limit else other
        told = _grid(rng, row, column, size) if kind in ("column", "row") else _anything(rng, row, column, size)
        return Exchange(told, json.dumps({"action": action}))

    return Lesson(prompt, [[exchange(turn) for turn in range(rng.randint(1, 4))] for _ in range(conversations)])


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
        return f"Observation: {rng.randrange(500)}"
    numbers = " ".join(f"{rng.uniform(-3, 3):.2f}" for _ in range(rng.randint(1, 6)))
    return f"Observation: [{numbers}]"
