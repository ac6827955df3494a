"""An agent whose environment has a table of its transitions, so that the best actions in each state can be computed."""

from collections.abc import Sequence
from typing import Any, ClassVar

from llamagym_tui.agent import Agent, best_actions


class TabularAgent(Agent):
    """An observation is the number of a state, and has all that matters."""

    history = 0
    discount: ClassVar[float] = 0.99
    """By which the best actions reckon."""

    def expert(self, observation: Any) -> int | None:
        """The first of the best actions; None: no action is better than another."""
        return next(iter(self.first_actions(observation)), None)

    def first_actions(self, observation: Any) -> Sequence[int]:
        """All best actions; empty if no action is better than another."""
        return best_actions(self.env_id, self.discount, **self.env_kwargs)[int(observation)]
