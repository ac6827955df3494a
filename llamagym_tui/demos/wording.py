"""Demonstrations whose observations the agent words differently now.

An episode with a seed is played again by its actions, and the agent's text of each observation is compared with the
file. A difference is no fault: such a file can be trained on, but the policy learns replies to prompts that it will
never get. What cannot be played again is not compared.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from llamagym_tui.demos.demonstration import Demonstration, readable
from llamagym_tui.demos.faults import Fault, short
from llamagym_tui.demos.files import lines_of
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.environment import Env, agent_env
from llamagym_tui.game.observed import observation_text


def reworded(path: Path, agent: AgentBase) -> list[Fault]:
    """A warning for the first observation of each episode of a file that the agent words differently.

    Unreadable lines are left out, and so are episodes of other environments, or without a seed.
    """
    found: list[Fault] = []
    env: Env | None = None
    for line in lines_of(path):
        demo = readable(line.content)
        if demo is None or demo.seed is None:
            continue
        if demo.env_id != agent.env_id or demo.env_kwargs != dict(agent.env_kwargs):
            continue
        env = env or agent_env(agent)
        pairs = zip(_played_again(env, demo, agent), demo.observations, strict=False)
        for turn, (now, then) in enumerate(pairs, start=1):
            if now != then:
                words = f"the agent now writes {short(now)} where the file has {short(then)}"
                found.append(Fault(line.number, f"Turn {turn}: {words}; record it again to train on the new text."))
                break
    if env is not None:
        env.close()
    return found


def _played_again(env: Env, demo: Demonstration, agent: AgentBase) -> Iterator[str]:
    """The agent's text of each observation before an action, until the episode ends or cannot go on."""
    with contextlib.suppress(Exception):  # an action of a faulty line, or a user's own code
        observation, info = env.reset(seed=demo.seed)
        for action in demo.actions:
            yield observation_text(agent, observation, info)
            observation, _, terminated, truncated, info = env.step(action)
            if terminated or truncated:
                return
