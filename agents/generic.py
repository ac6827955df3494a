"""An agent for any environment with few actions: it shows numbers as 0 to 99 of their ranges, and actions by number.

The catalog completes it with what it finds in the environment. An agent written for its environment plays better.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from llamagym_tui.agent import FAILED, ActionReading, Agent, answer, fields, in_words, read_action


class GenericAgent(Agent):
    """Plays an environment of which it knows the id and the spaces."""

    counts_actions = True
    decision_names: ClassVar[Sequence[Sequence[str]]] = ()
    """If an action combines several decisions, the names of the values of each decision; empty: their numbers."""
    observation_names: ClassVar[Sequence[str]] = ()
    """Names of an observation's numbers, in order; if there are too few, the other numbers have none."""
    observation_ranges: ClassVar[Sequence[tuple[float, float]]] = ()
    """The smallest and the largest value of each number of a Box; empty: the space's bounds, or measured by random
    play."""
    observation_sizes: ClassVar[Sequence[int]] = ()
    """If a Discrete observation is made of several numbers, as row and column, how many values each of them has; the
    last number counts fastest."""
    observation_values: ClassVar[Mapping[str, Sequence[str]]] = {}
    """Words for the values of a number of such an observation, by the number's name."""
    observation_space: ClassVar[Any] = None
    """The environment's observation space; None until the catalog has completed the agent."""
    text_space: ClassVar[Any] = None
    """The environment's action space, if actions are texts; else None."""

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
        if not self.observation_sizes:
            names = iter(self.observation_names)
            ranges = iter(self.observation_ranges)
            words = in_words(self.observation_space, observation, names, ranges)
            return f"Observation: {words}"
        numbers = fields(int(observation), self.observation_sizes)
        parts = []
        for name, number in zip(self.observation_names, numbers, strict=True):
            value_names = self.observation_values.get(name)
            parts.append(f"{name} {value_names[number] if value_names else number}")
        return f"Observation: {', '.join(parts)}"

    def extract_action(self, response: str) -> ActionReading:
        if self.text_space:
            text = answer(response).strip()
            return ActionReading(text, "custom") if self.text_space.contains(text) else FAILED
        return read_action(response, self.action_names)

    def format_action(self, action: Any) -> str:
        return str(action) if self.text_space else super().format_action(action)
