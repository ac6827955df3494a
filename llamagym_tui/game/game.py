"""One environment as its agent plays it: reset it, word its state, step it.

Everybody who plays an episode does so with a `Game`: a policy, an endpoint, an expert, a person. What the environment's
or the agent's code raises leaves it as an `EpisodeFault` that names that code and the action.
"""

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from llamagym_tui.errors import MOST_WORDS, RAISED, EnvError, described, user_place
from llamagym_tui.game import observed
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.environment import Env
from llamagym_tui.game.observed import Observed

LARGEST_RETURN = 1e15
"""Squares of such returns, and of their gradients, are numbers in the single precision that an update computes with."""
log = logging.getLogger(__name__)


class EpisodeFault(EnvError):
    """An episode cannot go on."""

    def __init__(self, what: str, error: BaseException | None = None) -> None:
        """`what` happened, without a full stop; `error` is what other people's code raised."""
        super().__init__(f"{what}: {described(error)}" if error else what)
        self.kind = type(self).__name__
        """Two faults of one kind have one cause."""
        if error:
            self.kind = f"{type(error).__name__}{user_place(error)}"


class Outcome(NamedTuple):
    """The result of a reset or a step."""

    observation: Any = None
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    info: observed.Info = observed.NO_INFO
    is_refused: bool = False
    """The environment refused the action."""
    steps: int = 0
    """Environment steps that the action took."""

    @property
    def is_over(self) -> bool:
        return self.terminated or self.truncated


class Game:
    def __init__(self, agent: AgentBase, make_env: Callable[[], Env]) -> None:
        """Make the environment; raises EnvError if it cannot be made."""
        self.agent = agent
        self._make_env = make_env
        self.env = make_env()
        self.outcome = Outcome()
        """Of the last reset or step."""
        self.wording = 0
        """Of the episode's observations."""
        self.is_broken = False
        """The environment has failed; the next reset makes another one."""

    def reset(self, seed: int) -> None:
        """Begin an episode."""
        failed = f"{self.agent.env_id} failed to reset"
        try:
            if self.is_broken:
                self.close()
                self.env = self._make_env()
                self.is_broken = False
            observation, info = self.env.reset(seed=seed)
        except EnvError as error:
            raise EpisodeFault(str(error).rstrip(".")) from error
        except RAISED as error:
            raise EpisodeFault(failed, error) from error
        self.outcome = Outcome(observation=observation, info=info)

    def step(self, action: Any, *, is_fallback: bool = False) -> Outcome:
        """Take an action; `is_fallback` says that no reply named it."""
        agent = self.agent
        source = "the fallback action" if is_fallback else f"action {str(action)[:MOST_WORDS]}"
        if not self._is_in_space(action):
            source += f", which is not in {self.env.action_space}"
            if self._is_counted():
                # Many environments would take it without a word, as -1 for the last one.
                raise EpisodeFault(f"{agent.env_id} was not stepped on {source}")
        try:
            observation, reward, terminated, truncated, info = self.env.step(action)
            self.outcome = Outcome(
                observation=observation,
                reward=float(reward),
                terminated=terminated,
                truncated=truncated,
                info=info,
                is_refused=observed.is_refused(info),
                steps=observed.action_steps(info),
            )
        except EnvError as error:
            raise EpisodeFault(f"{str(error).rstrip('.')} (after {source})") from error
        except RAISED as error:
            raise EpisodeFault(f"{agent.env_id} failed on {source}", error) from error
        return self.outcome

    def look(self) -> Observed:
        """The state in the agent's words; after the end no action is admissible."""
        agent = self.agent
        text = self.words(self.wording)
        if self.outcome.is_over:
            return Observed(text, None)
        try:
            actions = observed.admissible_actions(
                agent, self.outcome.observation, self.outcome.info
            )
            return Observed(text, actions)
        except EnvError as error:
            raise EpisodeFault(str(error).rstrip(".")) from error
        except RAISED as error:
            raise EpisodeFault(f"{type(agent).__name__}.actions failed", error) from error

    def words(self, wording: int) -> str:
        """The observation in one of the agent's wordings."""
        agent = self.agent
        try:
            return observed.observation_text(
                agent, self.outcome.observation, self.outcome.info, wording
            )
        except RAISED as error:
            failed = f"{type(agent).__name__}.{observed.wording_name(wording)} failed"
            raise EpisodeFault(failed, error) from error

    @property
    def awaits_other(self) -> bool:
        """The other player of a game for two is to move, and is not part of the environment."""
        return not self.outcome.is_over and observed.is_opponents(self.outcome.info)

    def close(self) -> None:
        """Close the environment; a failure in that ends nothing."""
        try:
            self.env.close()
        except RAISED:
            log.exception("an environment of %s was not closed", self.agent.env_id)

    def _is_in_space(self, action: Any) -> bool:
        try:
            return self.env.action_space.contains(action)
        except RAISED:
            return False

    def _is_counted(self) -> bool:
        """The environment's own code counts on actions of its space."""
        from gymnasium.spaces import Discrete, MultiBinary, MultiDiscrete

        return isinstance(self.env.action_space, Discrete | MultiDiscrete | MultiBinary)


def require_finite(agent: AgentBase, total: float, reward: float) -> None:
    """Raises EpisodeFault if a return, after this reward, is no number or too large to compute with."""
    # Not `>`, so that NaN is refused, too.
    if not abs(total) <= LARGEST_RETURN:
        raise EpisodeFault(
            f"the reward of {agent.env_id} is {reward:g}; it has to be a finite number, and no return beyond "
            f"{LARGEST_RETURN:.0e}"
        )
