"""A real run that is spoilt by its learning rate, and goes on from its last good checkpoint."""

from __future__ import annotations

import queue
from pathlib import Path

import pytest

from llamagym_tui.config import PPOConfig, RunConfig
from llamagym_tui.protocol.commands import AnyCommand, ChangeSettings, Stop
from llamagym_tui.protocol.events import Event, RolledBack, UpdateFinished
from llamagym_tui.run_store import RunStore
from llamagym_tui.trainer.session import Session

pytest.importorskip("torch")

SOUND = {"ppo.lr": 5e-4, "ppo.value_lr": 3e-3}
FAR_TOO_HIGH = {"ppo.lr": 3e-2, "ppo.value_lr": 3e-2}


@pytest.mark.slow
def test_a_policy_that_is_spoilt_by_its_learning_rate_is_rolled_back_and_learns_on(
    tmp_path: Path, model: str
) -> None:
    config = RunConfig(
        agent="blackjack", model=model, run_dir=str(tmp_path), seed=3, threads=1, n_envs=64, on_collapse="rollback",
        ppo=PPOConfig(batch_size=384, mini_batch_size=96, epochs=1, lr_final=5e-4),
    )  # fmt: skip
    command_queue: queue.SimpleQueue[AnyCommand] = queue.SimpleQueue()
    seen: list[Event] = []

    def steer(event: Event) -> None:
        seen.append(event)
        rolled_back = [event for event in seen if isinstance(event, RolledBack)]
        if isinstance(event, RolledBack):
            command_queue.put(ChangeSettings(changes=SOUND))
        elif isinstance(event, UpdateFinished) and event.update == 10 and not rolled_back:
            command_queue.put(ChangeSettings(changes=FAR_TOO_HIGH))
        elif isinstance(event, UpdateFinished) and event.update == (18 if rolled_back else 40):
            command_queue.put(Stop())

    session = Session(config, RunStore.create(config), command_queue, sinks=[steer])
    assert session.run() == "stopped", session.error
    (rolled,) = [event for event in seen if isinstance(event, RolledBack)]
    assert "has collapsed" in rolled.reason
    assert 10 <= rolled.update <= 11
    updates = [event for event in seen if isinstance(event, UpdateFinished)]
    last = updates[-5:]
    assert all(
        update.stats.mean_return > -0.3 and update.stats.parse_failure_rate < 0.05
        for update in last
    )
    assert max(update.stats.first_ratio for update in updates) < 1e-3
