"""Exact shares of FrozenLake-v1 episodes (map 4x4) that reach the goal, by dynamic programming over the steps left.

A policy is P(action) for each field. Undiscounted: the return of an episode is 1 if it reaches the goal before the time
limit, else 0. The transitions are Gymnasium's own table.

    python -m benchmarks.exact_frozen_lake
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium

from llamagym_tui.agents.frozen_lake import FrozenLakeAgent

Probabilities = Callable[[int], Sequence[float]]
"""P(left), P(down), P(right), P(up) on a field."""

START = 0
TIME_LIMIT = 100
"""Steps after which Gymnasium truncates an episode."""
ACTIONS = range(4)


class Outcome(NamedTuple):
    success: float
    """Share that reaches the goal."""
    truncated: float
    """Share that the time limit ends."""
    steps: float
    """Mean length."""


def transitions(
    env_kwargs: Mapping[str, Any],
) -> dict[int, dict[int, list[tuple[float, int, float, bool]]]]:
    """Gymnasium's table: by field and action, (probability, next field, reward, terminated)."""
    env = gymnasium.make(FrozenLakeAgent.env_id, **env_kwargs)
    table = env.unwrapped.P  # type: ignore[attr-defined]
    env.close()
    return table


def outcome(
    policy: Probabilities, env_kwargs: Mapping[str, Any], steps: int = TIME_LIMIT
) -> Outcome:
    """Exact outcome of a policy, from the start."""
    table = transitions(env_kwargs)
    under_way, success, length = {START: 1.0}, 0.0, 0.0
    for _ in range(steps):
        length += sum(under_way.values())
        following: dict[int, float] = {}
        for field, share in under_way.items():
            for action, chosen in zip(ACTIONS, policy(field), strict=True):
                for probability, to, reward, terminated in table[field][action]:
                    weight = share * chosen * probability
                    success += weight * reward
                    if not terminated:
                        following[to] = following.get(to, 0.0) + weight
        under_way = following
    return Outcome(success, sum(under_way.values()), length)


def best_success(env_kwargs: Mapping[str, Any], steps: int = TIME_LIMIT) -> float:
    """Largest share of episodes that any policy can bring to the goal, by backward induction."""
    table = transitions(env_kwargs)
    value = dict.fromkeys(table, 0.0)
    for _ in range(steps):
        value = {
            field: max(
                sum(
                    p * (reward + (0.0 if terminated else value[to]))
                    for p, to, reward, terminated in moves
                )
                for moves in by_action.values()
            )
            for field, by_action in table.items()
        }
    return value[START]


def main() -> None:
    uniform = outcome(lambda field: (0.25,) * 4, FrozenLakeAgent.env_kwargs)
    print(
        f"random           {uniform.success:.5f}, {uniform.steps:.2f} steps, truncated {uniform.truncated:.1e}"
    )
    print(f"optimal          {best_success(FrozenLakeAgent.env_kwargs):.5f}")


if __name__ == "__main__":
    main()
