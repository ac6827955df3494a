"""An agent for any environment with few actions: numbers as 0 to 99 of their ranges, actions by number.

The catalog completes it by its environment; an agent that is written for its environment plays better.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from llamagym_tui.agent import FAILED, ActionReading, Agent, fields, in_words, read_action


class GenericAgent(Agent):
    """Plays an environment of which it knows the id and the spaces."""

    counts_actions = True
    decision_names: ClassVar[Sequence[Sequence[str]]] = ()
    """Of a combined action, the names of the values of each decision; empty: their numbers."""
    observation_names: ClassVar[Sequence[str]] = ()
    """Of an observation's numbers, in order; the others have none."""
    observation_ranges: ClassVar[Sequence[tuple[float, float]]] = ()
    """Least and largest of each number of a Box; empty: the space's bounds, or measured by random play."""
    observation_sizes: ClassVar[Sequence[int]] = ()
    """Of the numbers that a Discrete observation is made of, the last one counting fastest: rows and columns, say."""
    observation_values: ClassVar[Mapping[str, Sequence[str]]] = {}
    """Words for the values of a number of such an observation, by its name."""
    observation_space: ClassVar[Any] = None
    """Set when the environment is known."""
    text_space: ClassVar[Any] = None
    """The action space, where actions are texts."""

    def get_system_prompt(self) -> str:
        beginning = (
            f"You are playing {self.title or self.env_id}. Each message tells an observation. "
        )
        if self.text_space:
            return (
                f"{beginning}Reply with a text of at most {self.text_space.max_length} characters."
            )
        actions = ", ".join(
            f'{{"action": {index}}} ({name})' for index, name in enumerate(self.action_names)
        )
        return f"{beginning}Reply with one of these actions: {actions}."

    def format_observation(self, observation: Any) -> str:
        if self.observation_sizes:
            named = zip(
                self.observation_names,
                fields(int(observation), self.observation_sizes),
                strict=True,
            )
            values = self.observation_values
            words = ", ".join(
                f"{name} {values[name][n] if name in values else n}" for name, n in named
            )
        else:
            names, ranges = iter(self.observation_names), iter(self.observation_ranges)
            words = in_words(self.observation_space, observation, names, ranges)
        return f"Observation: {words}"

    def extract_action(self, response: str) -> ActionReading:
        if self.text_space:
            text = response.strip()
            return ActionReading(text, "custom") if self.text_space.contains(text) else FAILED
        return read_action(response, self.action_names)

    def format_action(self, action: Any) -> str:
        return str(action) if self.text_space else super().format_action(action)
