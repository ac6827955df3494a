"""What slow environments cost: in a row, and at the same time, each in a process of its own.

    python -m benchmarks.slow_environments

Wall seconds of so many turns in each of some environments, the resets apart as the start. One kind of them waits, as
for a server; the other one computes, and gains as many times as there are free cores, at most.
"""

from __future__ import annotations

import time
from contextlib import closing
from functools import partial
from typing import Annotated, Any

import gymnasium
import typer
from gymnasium import spaces

from benchmarks.timing import alternate, machine, ratios, spread
from llamagym_tui.agents.cart_pole import CartPoleAgent
from llamagym_tui.game.environment import EnvMaker
from llamagym_tui.trainer.rollout.env_process import ParallelMaker

TURNS = 5


class Slow(gymnasium.Env[int, int]):
    """Each step takes so many seconds, of waiting or of one processor."""

    def __init__(self, step_s: float, computes: bool) -> None:
        self.observation_space = spaces.Discrete(2)
        self.action_space = spaces.Discrete(2)
        self.step_s = step_s
        self.computes = computes

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        until = time.process_time() + self.step_s
        if not self.computes:
            time.sleep(self.step_s)
        while self.computes and time.process_time() < until:
            pass
        return 0, 0.0, False, False, {}


class SlowAgent(CartPoleAgent):
    def format_observation(self, observation: Any) -> str:
        return f"Observation: {observation}"


def made(kwargs: dict[str, Any], more: Any) -> gymnasium.Env[Any, Any]:
    return Slow(**kwargs)


def main(
    step_s: Annotated[float, typer.Option(help="Seconds of a step.")] = 0.2,
    envs: Annotated[int, typer.Option(help="Environments.")] = 4,
    rounds: Annotated[int, typer.Option(help="Measurements of each.")] = 3,
) -> None:
    # Every process imports this module, and needs none of the engine.
    from benchmarks.bare_run import BareRun, settings
    from llamagym_tui.trainer.rollout.rollout import Rollout

    print(machine())
    run = BareRun(settings("cart_pole", ["seed=11"]), threads=1)
    for computes in (False, True):
        kwargs, starts = {"step_s": step_s, "computes": computes}, []

        def played(
            when: Any, kwargs: dict[str, Any] = kwargs, starts: list[float] = starts
        ) -> float:
            began = time.perf_counter()
            here = EnvMaker(SlowAgent(), lambda *ignored: Slow(**kwargs))
            make_env = ParallelMaker(here, partial(made, kwargs), when)
            options = {
                "n_envs": envs,
                "max_turns": TURNS + 1,
                "batch_turns": 10**6,
                "seed": 1,
                "make_env": make_env,
            }
            with closing(Rollout(SlowAgent(), run.policy, **options)) as rollout:
                rollout.begin_episodes()
                if when == "on":
                    starts.append(time.perf_counter() - began)
                began = time.perf_counter()
                for _ in range(TURNS):
                    rollout.step()
                return time.perf_counter() - began

        found = alternate(
            {"off": lambda p=played: p("off"), "on": lambda p=played: p("on")}, rounds
        )
        print(
            f"{envs} environments that {'compute' if computes else 'wait'}, {step_s} s a step, {TURNS} turns: "
            f"{spread(found['off']):.1f} s in a row, {spread(found['on']):.1f} s at the same time, "
            f"{ratios(found['off'], found['on']):.1f} times as fast; start {spread(starts):.1f} s",
            flush=True,
        )


if __name__ == "__main__":
    typer.run(main)
