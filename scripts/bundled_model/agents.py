"""Lessons in the worlds that ship: their own prompts and observations, with instructions and, mostly, without.

Observations are of random states, not of play, and no lesson has a good action: what pays is left to PPO.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from gymnasium.spaces import Discrete

from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.environment import agent_env
from llamagym_tui.setup.catalog import find_agent
from scripts.bundled_model.conditions import Numbers, State
from scripts.bundled_model.instructions import Instruction, always, either, report
from scripts.bundled_model.lessons import Chance, Exchange, Lesson, Mark, numbers_in

GRIDS = ("frozen_lake", "frozen_lake_8x8", "frozen_lake_slippery", "cliff_walking", "taxi")
BOXES = ("cart_pole", "mountain_car", "acrobot", "CartPole-v1", "MountainCar-v0", "Acrobot-v1")
DISCRETE = ("CliffWalking-v1", "Taxi-v4", "FrozenLake-v1")
WITHOUT = 0.5
"""Share of these lessons without an instruction."""
RANDOM_STEPS = 4000

NAMED = re.compile(r"([a-z]+[12]?|joint angle|joint spin) (\d+)\b")


class Known(NamedTuple):
    agent: AgentBase
    states: list[Any]
    """Observations in which a model can be asked, without playing."""
    features: Numbers
    """The numbers and words that the observations show."""


def random_states(agent: AgentBase) -> list[Any]:
    """All observations of the agent's environment if they are numbered, else those of random play."""
    env = agent_env(agent)
    env.action_space.seed(0)
    observation, _ = env.reset(seed=0)
    if isinstance(env.observation_space, Discrete):
        states: list[Any] = list(range(int(env.observation_space.n)))
    else:
        states = []
        for _ in range(RANDOM_STEPS):
            states.append(observation)
            observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
            if terminated or truncated:
                observation, _ = env.reset()
    env.close()
    return states


@cache
def known(name: str) -> Known:
    """An agent with states of its world, and what these show."""
    agent = find_agent(name)()
    states = random_states(agent)
    shown = state_of(agent.action_names, agent.format_observation(states[0]))
    numbers: dict[str, tuple[int, int]] = {}
    words: dict[str, set[str]] = {}
    for each in Chance(0).sample(states, min(len(states), 500)):
        for feature, value in state_of(agent.action_names, agent.format_observation(each)).items():
            if isinstance(value, int):
                low, high = numbers.get(feature, (value, value))
                numbers[feature] = (min(low, value), max(high, value))
            else:
                words.setdefault(feature, set()).add(value)
    ranges = {
        feature: bounds
        for feature, bounds in numbers.items()
        if bounds[0] < bounds[1] and feature in shown
    }
    return Known(
        agent, states, Numbers(ranges, {name: sorted(each) for name, each in words.items()})
    )


def state_of(actions: Sequence[str], text: str) -> State:
    """What an observation's text names: the first number behind each feature, the word behind each action."""
    found: dict[str, int | str] = {}
    for name, value in NAMED.findall(text.lower()):
        found.setdefault(name, int(value))
    for name in actions:
        if match := re.search(rf"\b{name} ([a-z]+)", text):
            found.setdefault(name, match[1])
    found.pop("observation", None)
    return found


def marks_of(text: str, state: State, told: Instruction) -> tuple[Mark, ...]:
    if not told.of:
        return ()
    of = [each for each in told.of if isinstance(each, str)]
    truth, less = (told.hints(state)[0], told.less(state)) if len(of) == 1 else ("", "")
    return tuple(
        Mark(each.end() - 1, "yes", truth, less) if each[1] in of else Mark(each.end() - 1, "no")
        for each in NAMED.finditer(text.lower())
    )


def lesson(rng: Chance, conversations: int) -> Lesson:
    name = rng.choice(GRIDS[:1] * 2 + GRIDS[1:] * 2 + BOXES * 2 + DISCRETE)
    agent, states, features = known(name)
    told: Instruction | None = None
    if rng.random() > WITHOUT:
        roll = rng.random()
        if roll < 0.2 and features.ranges:
            told = report(rng, features)
        elif roll < 0.35:
            told = always(rng, agent.action_names)
        elif features.ranges:
            told = either(rng, features, agent.action_names)
    prompt = agent.get_system_prompt()
    if told is not None:
        prompt = f"{prompt} {told.text}"

    def exchange() -> Exchange:
        wanted = rng.random() < 0.5
        for _ in range(12):
            text = agent.format_observation(rng.choice(states))
            state = state_of(agent.action_names, text)
            if told is None or told.told is None or told.told(state) == wanted:
                break
        action = rng.randrange(len(agent.action_names)) if told is None else told.act(state)
        reply = agent.format_action(action)
        if told is None:
            return Exchange(text, reply, numbers_in(text))
        return Exchange(
            text, reply, numbers_in(text), told.hints(state), marks_of(text, state, told)
        )

    marks = () if told is None else told.own_marks(prompt)
    return Lesson(prompt, [[exchange()] for _ in range(conversations)], marks)
