"""What is chosen is what the environment gets: by masks of several decisions, and by names that are alike."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from llamagym_tui.agent import Agent
from llamagym_tui.errors import EnvError
from llamagym_tui.trainer.rollout.rollout import Rollout
from tests.toy_env import CountAgent

ALLOWED = (np.array([1, 0]), np.array([0, 0, 1]))


class MaskedEnv(gymnasium.Env[int, Any]):
    """Two decisions, of which only (0, 2) is allowed, and nothing where the episode is over."""

    heard: ClassVar[list[list[int]]] = []
    observation_space = spaces.Discrete(2)
    action_space = spaces.MultiDiscrete([2, 3])

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return 0, {"action_mask": ALLOWED}

    def step(self, action: Any) -> Any:
        self.heard.append(list(map(int, action)))
        return 1, 1.0, True, False, {"action_mask": (np.zeros(2), np.zeros(3))}


gymnasium.register("LlamaMasked-v0", MaskedEnv)


class MaskedAgent(CountAgent):
    env_id = "LlamaMasked-v0"
    action_names = tuple("abcdef")
    counts_actions = True


def rollout_of(agent: Agent, make_policy: Any) -> Rollout:
    policy = make_policy(policy="score", replies=agent.action_names)
    return Rollout(agent, policy, n_envs=2, max_turns=9, batch_turns=8, seed=1, max_failures=2)


def test_only_what_a_mask_of_several_decisions_allows_is_played(make_policy) -> None:
    MaskedEnv.heard.clear()
    rollout = rollout_of(MaskedAgent(), make_policy)
    for _ in range(4):
        rollout.step()
    assert MaskedEnv.heard == [[0, 2]] * 8
    assert rollout.failures.dropped == 0


def test_a_chosen_reply_that_is_read_otherwise_is_refused(make_policy) -> None:
    class Denies(CountAgent):
        action_names = ("go", "not go")

        def format_action(self, action: int) -> str:
            return self.action_names[action]

        def actions(self, observation: int) -> list[str]:
            return ["not go"]

    rollout = rollout_of(Denies(), make_policy)
    with pytest.raises(
        EnvError, match="Denies reads no action in 'not go', the reply that was chosen for 'not go'"
    ):
        rollout.step()
