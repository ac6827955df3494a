"""An agent whose environment has a table of its transitions: its best actions and a policy's mean return are exact."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from llamagym_tui.agent import Agent, best_actions, exact_return


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

    def mean_return(self, shares: Mapping[Any, Sequence[float]], turns: int) -> float | None:
        return exact_return(self.env_id, shares, turns, **self.env_kwargs)
