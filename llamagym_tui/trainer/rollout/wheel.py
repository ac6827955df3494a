"""The wheel: a person acts in one environment in the agent's place, a turn at a time, until it is let go.

Holds who acts where and what was chosen; that a step waits meanwhile is the rollout's matter. The agent replies all
the same, so that it is known what it would have said.
"""

from __future__ import annotations

from collections.abc import Sequence

from llamagym_tui.errors import UsageError
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.choices import Choice, worded
from llamagym_tui.protocol.events import (
    EpisodeCorrected,
    EpisodeFinished,
    EpisodeStarted,
    Event,
    ObservationShown,
    TurnFinished,
)


class Wheel:
    """The wheel of one rollout."""

    def __init__(self, agent: AgentBase) -> None:
        """A wheel that nobody has.

        Args:
            agent: whose replies name a person's actions.
        """
        self._agent = agent
        self.env: int | None = None
        """Environment in which a person acts; None: nobody has the wheel."""
        self.reply: str | None = None
        """The person's reply in the turn that waits; None: they have not chosen yet."""
        self._choices: tuple[Choice, ...] = ()

    def take(self, env: int, choices: tuple[Choice, ...]) -> None:
        """Act in an environment from now on."""
        self.env, self._choices, self.reply = env, choices, None

    def let_go(self) -> None:
        """Nobody has it; a choice that was not taken yet is forgotten."""
        self.env, self.reply = None, None

    def choose(self, action: int, reasoning: str) -> None:
        """Word the person's action as the agent would.

        Raises:
            UsageError: there is no such action.
            ActionParseError: with this sentence the reply would not be read as the action.
        """
        if action not in {choice.action for choice in self._choices}:
            raise UsageError(f"There is no action {action} in {self._agent.env_id}; choose one of those shown.")
        self.reply = worded(self._agent, action, reasoning)

    def taken_reply(self) -> str:
        """The reply that was chosen, once."""
        reply, self.reply = self.reply, None
        assert reply is not None, "the step waits for it"
        return reply


def episode_corrected(told: Sequence[Event]) -> EpisodeCorrected:
    """An episode in which a person acted, from the events that told it, first to last; an observation that nobody
    answered is left out."""
    started, finished = told[0], told[-1]
    assert isinstance(started, EpisodeStarted) and isinstance(finished, EpisodeFinished)
    turns = [event for event in told if isinstance(event, TurnFinished)]
    observations = [event.text for event in told if isinstance(event, ObservationShown)]
    return EpisodeCorrected(started=started, observations=observations[: len(turns)], turns=turns, finished=finished)
