"""What slow environments cost: in a row, and at the same time, each in a process of its own.

    python -m benchmarks.slow_environments

Wall seconds of so many turns in each of some environments, the resets apart as the start. One kind of them waits, as
for a server; the other one computes, and gains as many times as there are free cores, at most.
"""

from __future__ import annotations

import time
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import gymnasium
from gymnasium import spaces

from benchmarks.timing import alternate, machine, ratios, spread
from llamagym_tui.agents.cart_pole import CartPoleAgent
from llamagym_tui.game.environment import EnvMaker
from llamagym_tui.trainer.rollout.env_process import ParallelMaker

if TYPE_CHECKING:
    from llamagym_tui.engine.policy.policy import Policy

STEP_S = 0.2
"""Seconds of a step."""
ENVS = 4
TURNS = 5
ROUNDS = 3
"""Measurements of each."""


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


def played(policy: Policy, computes: bool, when: Literal["on", "off"]) -> tuple[float, float]:
    """Seconds of the start, and of the turns; `when` the environments run at the same time."""
    from llamagym_tui.trainer.rollout.rollout import Rollout

    kwargs = {"step_s": STEP_S, "computes": computes}
    here = EnvMaker(SlowAgent(), lambda *ignored: Slow(**kwargs))
    began = time.perf_counter()
    rollout = Rollout(
        SlowAgent(),
        policy,
        n_envs=ENVS,
        max_turns=TURNS + 1,
        batch_turns=10**6,
        seed=1,
        make_env=ParallelMaker(here, partial(made, kwargs), when),
    )
    with closing(rollout):
        rollout.begin_episodes()
        begun = time.perf_counter()
        for _ in range(TURNS):
            rollout.step()
        return begun - began, time.perf_counter() - begun


def main() -> None:
    # Every process imports this module, and needs none of the engine.
    from benchmarks.bare_run import BareRun, settings

    print(machine())
    run = BareRun(settings("cart_pole", ["seed=11"]), threads=1)
    for computes in (False, True):
        found = alternate(
            {when: partial(played, run.policy, computes, when) for when in ("off", "on")}, ROUNDS
        )
        in_a_row = [turns_s for _, turns_s in found["off"]]
        at_once = [turns_s for _, turns_s in found["on"]]
        print(
            f"{ENVS} environments that {'compute' if computes else 'wait'}, {STEP_S} s a step, {TURNS} turns: "
            f"{spread(in_a_row):.1f} s in a row, {spread(at_once):.1f} s at the same time, "
            f"{ratios(in_a_row, at_once):.1f} times as fast; "
            f"start {spread([start_s for start_s, _ in found['on']]):.1f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
