"""Episodes whose replies come as text: those that fail are dropped, those that do not end are cut off."""

from __future__ import annotations

from typing import Any

import gymnasium
import pytest

from llamagym_tui.agent import Agent
from llamagym_tui.errors import EnvError
from llamagym_tui.trainer.rollout.endpoint_rollout import EndpointRollout, Played


class Count(gymnasium.Env[int, int]):
    """Counts up for ever, and fails where an episode's seed is odd; each step earns 1."""

    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Discrete(100)
    seed, at = 0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        self.seed, self.at = seed or 0, 0
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        if self.seed % 2:
            raise RuntimeError("odd")
        self.at += 1
        return self.at, 1.0, False, False, {}


class Counter(Agent):
    env_id = "Count-v0"
    action_names = ("on", "off")

    def get_system_prompt(self) -> str:
        return "Count."

    def format_observation(self, observation: int) -> str:
        return f"At {observation}."


def played(seeds: list[int], **limits: int) -> tuple[list[Played], EndpointRollout, list[str]]:
    told: list[str] = []
    rollout = EndpointRollout(
        Counter(),
        lambda conversations, _: ['{"action": "off"}'] * len(conversations),
        system_prompt="Count.",
        history=None,
        seed_of=seeds.__getitem__,
        make_env=Count,
        warn=told.append,
        **{"max_turns": 3, "max_failures": 5, **limits},
    )
    return list(rollout.play(3, 2)), rollout, told


def test_an_episode_that_fails_is_dropped_and_one_that_does_not_end_is_cut_off() -> None:
    found, rollout, told = played([2, 1, 4, 3, 6])
    counts = [episode.counts for episode in found]
    assert [(each.number, each.episode_return, each.actions) for each in counts] == [
        (0, 3.0, (0, 3)),
        (2, 3.0, (0, 3)),
        (4, 3.0, (0, 3)),
    ]
    assert [(each.end, each.seed) for each in found] == [
        ("truncated", 2),
        ("truncated", 4),
        ("truncated", 6),
    ]
    assert rollout.failures.dropped == 2
    assert (
        "Environment 2, episode 1, step 1: Count-v0 failed on action 1: RuntimeError: odd"
        in told[0]
    )
    assert sum("cut off after 3 turns" in sentence for sentence in told) == 1


def test_as_many_failures_in_a_row_as_are_allowed_end_it() -> None:
    with pytest.raises(EnvError, match="2 episodes in a row failed"):
        played([1, 1, 1, 1], max_failures=2)
