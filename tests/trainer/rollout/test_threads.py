"""Slow environments step at the same time; a fault in a thread drops its episode alone."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from llamagym_tui.protocol.events import WarningRaised
from llamagym_tui.trainer.rollout.rollout import Rollout
from tests.toy_env import CountAgent, CountEnv


class SlowEnv(CountEnv):
    step_s = 0.0
    present = 0
    most_present = 0
    lock = threading.Lock()

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        with SlowEnv.lock:
            SlowEnv.present += 1
            SlowEnv.most_present = max(SlowEnv.most_present, SlowEnv.present)
        time.sleep(self.step_s)
        with SlowEnv.lock:
            SlowEnv.present -= 1
        if self.seeds[-1] is not None and self.seeds[-1] % 5 == 0:
            raise ValueError("the simulator is gone")
        return super().step(action)


@pytest.mark.parametrize(
    ("parallel", "step_s", "together"),
    [("auto", 0.01, True), ("auto", 0.0, False), ("off", 0.01, False), ("on", 0.001, True)],
)
def test_slow_environments_step_at_the_same_time(
    make_policy: Any, monkeypatch: pytest.MonkeyPatch, parallel: Any, step_s: float, together: bool
) -> None:
    monkeypatch.setattr(SlowEnv, "step_s", step_s)
    monkeypatch.setattr(SlowEnv, "most_present", 0)
    warnings: list[str] = []

    def emit(event: Any) -> None:
        if isinstance(event, WarningRaised):
            warnings.append(event.message)

    rollout = Rollout(
        CountAgent(),
        make_policy(policy="score"),
        n_envs=4,
        max_turns=None,
        batch_turns=40,
        seed=0,
        emit=emit,
        make_env=SlowEnv,
        parallel=parallel,
    )
    rollout.mode = "inference"
    while rollout.episodes < 30:
        rollout.step()
    rollout.close()
    assert (SlowEnv.most_present > 1) == together
    assert any("step at the same time" in each for each in warnings) == together
    assert rollout.failures.dropped > 0
    assert any(
        "the simulator is gone" in each and "test_threads.py, line" in each for each in warnings
    )
