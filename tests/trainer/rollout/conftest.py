"""A rollout of two environments, and its warnings."""

from __future__ import annotations

import pytest

from llamagym_tui.protocol import events
from llamagym_tui.trainer.rollout.rollout import Rollout
from tests.toy_env import CountAgent

SEED = 7


@pytest.fixture
def make_rollout(make_policy):
    def make(agent: CountAgent, **changes) -> tuple[Rollout, list[str]]:
        warnings: list[str] = []

        def emit(event: events.Event) -> None:
            if isinstance(event, events.WarningRaised):
                warnings.append(event.message)

        settings = {
            "n_envs": 2,
            "max_turns": 9,
            "batch_turns": 8,
            "seed": SEED,
            "max_failures": 3,
        } | changes
        return Rollout(agent, make_policy(), emit=emit, **settings), warnings

    return make
