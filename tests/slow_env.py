"""Environments that take their time, each in a process of its own; what happens in one is seen in files."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium

from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.environment import EnvMaker, agent_env
from llamagym_tui.trainer.rollout.env_process import ParallelMaker
from tests.toy_env import CountAgent, CountEnv

MEETING_S = 20.0
"""Seconds that environments wait for each other, at most."""


class MeetingEnv(CountEnv):
    """Resets and steps only together with others: `n` of them, each in a process of its own."""

    def __init__(self, folder: str, n: int) -> None:
        super().__init__()
        self.folder, self.n, self.calls = Path(folder), n, 0

    def reset(self, **more: Any) -> tuple[int, dict[str, Any]]:
        self.meet()
        return super().reset(**more)

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.meet()
        return super().step(action)

    def meet(self) -> None:
        self.calls += 1
        (self.folder / f"{self.calls}-{os.getpid()}").touch()
        until = time.monotonic() + MEETING_S
        while len(list(self.folder.glob(f"{self.calls}-*"))) < self.n:
            if time.monotonic() > until:
                raise TimeoutError("nobody came")
            time.sleep(0.005)


class Unreadable(Exception):
    """Can be pickled, but not unpickled."""

    def __init__(self, this: str, that: str) -> None:
        super().__init__(f"{this} and {that}")


class MortalEnv(CountEnv):
    """In the episode of one seed, its first step ends the process, or raises; and what it shows may not be sent."""

    def __init__(
        self, seed: int = -1, fault: str = "", step_s: float = 0.0, shows: Any = None
    ) -> None:
        super().__init__()
        self.max_steps = 7  # as minigrid's have it
        self.mortal_seed, self.fault, self.step_s, self.shows = seed, fault, step_s, shows

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        time.sleep(self.step_s)
        random.random()
        if self.seeds[-1] == self.mortal_seed:
            if self.fault == "raises":
                raise RuntimeError("the door is stuck")
            os._exit(3)
        count, *rest, _ = super().step(action)
        shows = Unreadable("this", "that") if self.shows == "unreadable" else lambda: self.shows
        return count, *rest, {} if self.shows is None else {"shows": shows}


for name, entry in (("LlamaMeeting-v0", MeetingEnv), ("LlamaMortal-v0", MortalEnv)):
    if name not in gymnasium.registry:
        gymnasium.register(name, entry_point=entry)


class MeetingAgent(CountAgent):
    env_id = "LlamaMeeting-v0"


class MortalAgent(CountAgent):
    env_id = "LlamaMortal-v0"


def with_kwargs(agent_class: type[AgentBase], **kwargs: Any) -> AgentBase:
    agent = agent_class()
    agent.env_kwargs = kwargs
    return agent


def pid_of(env: Any) -> int:
    return os.getpid()


def made_there(agent_class: type[AgentBase], kwargs: dict[str, Any], more: dict[str, Any]) -> Any:
    return agent_env(with_kwargs(agent_class, **kwargs), more=more)


def hundred(env: Any) -> int:
    return 100


def maker(agent: AgentBase, when: Any = "on") -> ParallelMaker:
    there: Callable[..., Any] = partial(made_there, type(agent), dict(agent.env_kwargs))
    return ParallelMaker(EnvMaker(agent), there, when, count=3)
