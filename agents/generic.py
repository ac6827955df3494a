"""An agent for any environment with few actions: it shows numbers as 0 to 99 of their ranges, and actions by number.

The catalog completes it with what it finds in the environment. An agent written for its environment plays better.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

from llamagym_tui.agent import FAILED, ActionReading, Agent, answer, in_words, read_action


class GenericAgent(Agent):
    """Plays an environment of which it knows the id and the spaces."""

    counts_actions = True
    observation_names: ClassVar[Sequence[str]] = ()
    """Names of an observation's numbers, in order; if there are too few, the other numbers have none."""
    observation_ranges: ClassVar[Sequence[tuple[float, float]]] = ()
    """The smallest and the largest value of each number of a Box; empty: the space's bounds, or measured by random
    play."""
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
        names = iter(self.observation_names)
        ranges = iter(self.observation_ranges)
        words = in_words(self.observation_space, observation, names, ranges)
        return f"Observation: {words}"

    def extract_action(self, response: str) -> ActionReading:
        if self.text_space:
            text = answer(response).strip()
            return ActionReading(text, "custom") if self.text_space.contains(text) else FAILED
        return read_action(response, self.action_names)

    def format_action(self, action: Any) -> str:
        return str(action) if self.text_space else super().format_action(action)
