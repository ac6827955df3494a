"""A small environment with a known course: it counts its steps and pays one at the end, or never ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import pytest
from gymnasium import spaces

from llamagym_tui.agent import ActionReading, Agent, read_action
from llamagym_tui.game import environment


@contextmanager
def made_by(make: Callable[..., Any]) -> Iterator[None]:
    """Let `make` make the environments, from an id and keyword arguments."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(environment, "make_env", make)
        yield


class CountEnv(gymnasium.Env[int, int]):
    """Ends after `length` steps, or never; the observation is the number of steps taken."""

    def __init__(self, length: int = 2, endless: bool = False) -> None:
        self.observation_space = spaces.Discrete(100)
        self.action_space = spaces.Discrete(2)
        self.length, self.endless, self.steps = length, endless, 0
        self.seeds: list[int | None] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.steps = 0
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), f"action {action!r}"
        self.steps += 1
        terminated = not self.endless and self.steps >= self.length
        return self.steps, float(terminated), terminated, False, {}


if "LlamaCount-v0" not in gymnasium.registry:
    gymnasium.register("LlamaCount-v0", entry_point=CountEnv)


class FaultyEnv(CountEnv):
    """The same; `fault` is called with it at each reset and step, and may raise, or return another reward."""

    made = 0

    def __init__(self, fault: Callable[[FaultyEnv], float | None], length: int = 2) -> None:
        super().__init__(length)
        FaultyEnv.made += 1
        self.fault = fault
        self.is_closed = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        found = super().reset(seed=seed)
        self.fault(self)
        return found

    def step(self, action: int) -> tuple[int, Any, bool, bool, dict[str, Any]]:
        count, reward, *rest = super().step(action)
        other = self.fault(self)
        return count, reward if other is None else other, *rest  # type: ignore[return-value]

    def close(self) -> None:
        self.is_closed = True


if "LlamaFaulty-v0" not in gymnasium.registry:
    gymnasium.register("LlamaFaulty-v0", entry_point=FaultyEnv)


class CountAgent(Agent):
    """Tells the count."""

    env_id = "LlamaCount-v0"
    action_names = ("wait", "go")

    def get_system_prompt(self) -> str:
        return "Count."

    def format_observation(self, observation: Any) -> str:
        return f"Steps: {observation}."

    def extract_action(self, response: str) -> ActionReading:
        return read_action(response, self.action_names)


class EndlessAgent(CountAgent):
    """The same, in an environment that only a limit ends."""

    env_kwargs = {"endless": True}  # noqa: RUF012
