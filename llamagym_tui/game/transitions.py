"""An environment with a table `P` of its transitions, as Gymnasium's toy text: best actions, a policy's mean return.

Each is exact, and no episode is played for it. S states, A actions.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from llamagym_tui.game.environment import make_env

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

MOST_SWEEPS = 1_000
"""Sweeps of value iteration, at most."""
NEVER = 1e-9
"""Probability that is only rounding."""


class Transitions(NamedTuple):
    rewards: "Array"
    """(S, A) mean reward of an action."""
    chances: "Array"
    """(S, A, S) probability that an action leads to a state in which the episode goes on."""
    starts: "Array"
    """(S,) probability that an episode begins in a state."""


def best_actions(env_id: str, discount: float = 0.99, **env_kwargs: Any) -> list[list[int]]:
    """All best actions in each state. Where no action is better than another, there are none."""
    return _best_actions(env_id, discount, _hashable(env_kwargs))


def exact_return(
    env_id: str, shares: Mapping[Any, Sequence[float]], turns: int, **env_kwargs: Any
) -> float | None:
    """Mean return of a policy over all starts, not discounted.

    Args:
        shares: probability of each action by the number of the state.
        turns: after which an episode is cut off.
    Returns:
        None: the policy is not known in a state that it can reach, so its mean return is not, either.
    """
    import numpy as np

    rewards, chances, starts = _transitions(env_id, _hashable(env_kwargs))
    policy = np.zeros(rewards.shape)
    is_unknown = np.ones(len(policy), dtype=bool)
    for state, row in shares.items():
        policy[state] = row
        is_unknown[state] = False
    earned = (policy * rewards).sum(axis=1)
    moves = np.einsum("sa,sat->st", policy, chances)
    total = 0.0
    here = starts
    for _ in range(turns):
        if here[is_unknown].sum() > NEVER:
            return None
        total += float(here @ earned)
        here = here @ moves
    return total


def _hashable(env_kwargs: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(
        (key, tuple(value) if isinstance(value, list) else value)
        for key, value in env_kwargs.items()
    )


@lru_cache(64)
def _transitions(env_id: str, env_kwargs: tuple[tuple[str, Any], ...]) -> Transitions:
    import numpy as np

    with closing(make_env(env_id, dict(env_kwargs))) as env:
        table = env.unwrapped.P  # type: ignore[attr-defined]
        starts = np.array(env.unwrapped.initial_state_distrib)  # type: ignore[attr-defined]
    rewards = np.zeros((len(table), len(table[0])))
    chances = np.zeros((*rewards.shape, len(table)))
    for state, outcomes_of in table.items():
        for action, outcomes in outcomes_of.items():
            for probability, after, reward, is_over in outcomes:
                rewards[state, action] += probability * reward
                chances[state, action, after] += probability * (not is_over)
    return Transitions(rewards, chances, starts)


@lru_cache(64)
def _best_actions(
    env_id: str, discount: float, env_kwargs: tuple[tuple[str, Any], ...]
) -> list[list[int]]:
    """By value iteration."""
    import numpy as np

    rewards, chances, _ = _transitions(env_id, env_kwargs)
    values = np.zeros(len(rewards))
    for _ in range(MOST_SWEEPS):
        worth = rewards + discount * chances @ values
        before = values
        values = worth.max(axis=1)
        if (values == before).all():
            break
    # Rounding must not decide between equal actions.
    is_best = worth > values[:, None] - 1e-9
    is_best[is_best.all(axis=1)] = False
    return [np.flatnonzero(row).tolist() for row in is_best]
