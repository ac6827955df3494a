"""An agent for any environment with discrete actions: observations as literal text, actions by number.

The catalog makes a subclass of it for a Gymnasium id. It shows a model nothing but numbers; an agent that is
written for its environment plays better.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llamagym_tui.agent import ActionReading, Agent, read_action


class GenericAgent(Agent):
    """Plays an environment of which it knows the id and the number of actions."""

    def get_system_prompt(self) -> str:
        actions = ", ".join(f'{{"action": {index}}} ({name})' for index, name in enumerate(self.action_names))
        return (
            f"You are playing {self.title or self.env_id}. Each message tells an observation. "
            f"Reply with one of these actions: {actions}."
        )

    def format_observation(self, observation: Any) -> str:
        return f"Observation: {as_text(observation)}"

    def extract_action(self, response: str) -> ActionReading:
        return read_action(response, self.action_names)


def as_text(value: Any) -> str:
    """Numbers, arrays, tuples, mappings and strings as short literal text."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, bool | str):
        return str(value) or "(nothing)"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return "; ".join(f"{key}: {as_text(item)}" for key, item in value.items()) or "(nothing)"
    if isinstance(value, Sequence):
        return "[" + ", ".join(as_text(item) for item in value) + "]"
    return str(value)
