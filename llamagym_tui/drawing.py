"""The state of an environment as plain text for people: the agent's own drawing, or what the environment renders.

What a user's code or an environment raises over a drawing is no drawing, and no reason to end a game.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from llamagym_tui.agent import Agent

MAX_LINES = 12
"""Lines of a drawing at most."""
_COLOURED = re.compile(r"\x1b\[[0-9;]+m(.*?)\x1b\[0?m", re.DOTALL)
"""A stretch that a terminal would show in another colour."""


def draws(agent: Agent) -> bool:
    """Whether an agent brings a drawing of its own."""
    return type(agent).draw is not Agent.draw


def renders_text(env: Any, env_kwargs: Mapping[str, Any]) -> bool:
    """Whether an environment could be made so that it renders text, and nobody asked for something else."""
    return "render_mode" not in env_kwargs and "ansi" in (env.metadata.get("render_modes") or ())


def drawing(agent: Agent, env: Any, observation: Any) -> str:
    """The drawing of an observation, or of the environment's state; empty if there is none."""
    try:
        drawn = agent.draw(observation) if draws(agent) else _rendered(env)
    except Exception:  # an environment's code, or a user's, may raise anything
        return ""
    return "\n".join(str(drawn).strip("\n").split("\n")[:MAX_LINES])


def _rendered(env: Any) -> str:
    """What Gymnasium's text rendering says, what it marks by a colour in brackets."""
    rendered = env.render() if env.render_mode == "ansi" else ""
    return _COLOURED.sub(r"[\1]", rendered) if isinstance(rendered, str) else ""
