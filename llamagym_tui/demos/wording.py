"""Demonstrations that tell their observations otherwise than the agent does now.

An episode with a seed is played again by its actions, and what the agent says of each observation is compared with the
file. It is no fault: such a file can be trained on, but it teaches what to say after words that nobody says any more.
What cannot be played again is not compared.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from llamagym_tui.demos.demonstration import Demonstration
from llamagym_tui.demos.faults import Fault
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.environment import make_env

if TYPE_CHECKING:
    import gymnasium

LONGEST = 60
"""Characters of an observation that are told."""


def reworded(numbered: Mapping[int, Demonstration], agent: AgentBase) -> list[Fault]:
    """The first observation of each episode that the agent words otherwise, by line; they are warnings.

    Args:
        numbered: demonstrations by their line; those of other environments, or without a seed, are left out.
        agent: tells observations.
    """
    found: list[Fault] = []
    env: gymnasium.Env[Any, Any] | None = None
    for line, demo in numbered.items():
        if demo.env_id != agent.env_id or demo.env_kwargs != dict(agent.env_kwargs) or demo.seed is None:
            continue
        env = env or make_env(agent.env_id, agent.env_kwargs)
        told = [message["content"] for message in demo.messages if message["role"] == "user"]
        for turn, (now, then) in enumerate(zip(_played_again(env, demo, agent), told, strict=False), start=1):
            if now != then:
                words = f"the agent now says {_short(now)} where the file says {_short(then)}"
                found.append(Fault(line, f"Turn {turn}: {words}; record it anew, or what it teaches is not used."))
                break
    if env is not None:
        env.close()
    return found


def _played_again(env: gymnasium.Env[Any, Any], demo: Demonstration, agent: AgentBase) -> Iterator[str]:
    """What the agent says of each observation before an action, until the episode ends or cannot go on."""
    with contextlib.suppress(Exception):  # an action of a faulty line, or a user's own code
        observation, _ = env.reset(seed=demo.seed)
        for action in demo.actions:
            yield agent.format_observation(observation)
            observation, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                return


def _short(text: str) -> str:
    return repr(text if len(text) <= LONGEST else f"{text[:LONGEST]}…")
