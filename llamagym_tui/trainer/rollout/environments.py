"""Environments of a rollout, and the episode that is played in each.

Holds what is counted of an episode; who plays in them, and when, is up to the rollout.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from llamagym_tui.config import Mode
from llamagym_tui.engine.policy.episode import Episode
from llamagym_tui.trainer.rollout.failures import RAISED

if TYPE_CHECKING:
    import gymnasium


LARGEST_RETURN = 1e30
"""Sums and spreads of such returns are still numbers in the single precision that an update computes with."""
log = logging.getLogger(__name__)


def episode_seed(run_seed: int, episode: int) -> int:
    """The seed with which an episode's environment is reset, whichever environment that is, so that it can be repeated.

    `episode` counts from 0 over all sessions of a run.
    """
    return int(np.random.SeedSequence([run_seed, episode]).generate_state(1)[0])


@dataclass(frozen=True, slots=True)
class EndedEpisode:
    """What is counted of an episode, watched or not."""

    episode_return: float
    length: int
    parse_failures: int
    mode: Mode
    prompt_version: int
    policy_version: int
    actions: tuple[int, ...] = ()
    """Turns in which the reply named each action; empty: they are not counted."""
    is_corrected: bool = False
    """Whether a person acted in it."""
    is_truncated: bool = False
    """Whether a limit cut it off: the environment's, `max_turns`, or what the model can read."""


@dataclass(slots=True)
class EnvSlot:
    """One environment and the episode that is played in it."""

    index: int
    env: gymnasium.Env[Any, Any]
    episode: Episode | None = None
    number: int = 0
    mode: Mode = "train"
    prompt_version: int = 0
    observation: str = ""
    length: int = 0
    episode_return: float = 0.0
    parse_failures: int = 0
    actions: list[int] = field(default_factory=list)
    is_corrected: bool = False
    """Whether a person acted in this episode."""
    is_truncated: bool = False
    """Whether a limit has cut it off."""
    knows_last: bool = True
    """Whether the sampler has seen the last reply."""
    is_broken: bool = False
    """Whether its environment has failed, and is made anew before the next episode."""

    def close(self) -> None:
        """Close the environment; one that fails in that ends nothing."""
        try:
            self.env.close()
        except RAISED:
            log.exception("environment %d was not closed", self.index + 1)

    def ended(self, policy_version: int) -> EndedEpisode:
        return EndedEpisode(
            self.episode_return,
            self.length,
            self.parse_failures,
            self.mode,
            self.prompt_version,
            policy_version,
            tuple(self.actions),
            self.is_corrected,
            self.is_truncated,
        )
