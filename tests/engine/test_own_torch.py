"""The engine computes under torch's settings that it needs, whatever an environment or a user has set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import pytest
import torch

from llamagym_tui.engine import own_torch as module
from llamagym_tui.engine.own_torch import own_torch
from llamagym_tui.settings import PPOConfig
from llamagym_tui.trainer.rollout.rollout import Rollout
from tests.toy_env import CountAgent, FaultyEnv


@contextmanager
def put_back(setting: Callable[[Any], None], value: Any, before: Any) -> Iterator[None]:
    setting(value)
    try:
        yield
    finally:
        setting(before)


OTHERS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "no gradients": torch.no_grad,
    "inference mode": torch.inference_mode,
    "float64": lambda: put_back(torch.set_default_dtype, torch.float64, torch.float32),
    "another device": lambda: put_back(torch.set_default_device, "meta", None),
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "threads": lambda: put_back(torch.set_num_threads, 2, 1),
}


def state() -> tuple[Any, ...]:
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_default_dtype(),
        torch.get_default_device().type,
        torch.is_autocast_enabled("cpu"),
        torch.get_num_threads(),
    )


@pytest.mark.parametrize("other", OTHERS)
def test_what_others_have_set_holds_for_them_and_not_for_the_engine(other, monkeypatch) -> None:
    monkeypatch.setattr(module, "_chosen", {"threads": 1})
    with OTHERS[other]():
        before = state()
        with own_torch():
            assert state() == (True, False, torch.float32, "cpu", False, 1)
        assert state() == before


def test_threads_are_a_users_own_where_the_engine_has_chosen_none(monkeypatch) -> None:
    monkeypatch.setattr(module, "_chosen", {})
    with OTHERS["threads"](), own_torch():
        assert torch.get_num_threads() == 2


def weights_after(make_policy: Any, make_learner: Any, other: str) -> list[float]:
    """The weights after an update on episodes of an environment that sets torch otherwise, amid its first step."""
    with ExitStack() as after:
        has_set = []

        def fault(env: FaultyEnv) -> None:
            if other and env.steps and not has_set:
                has_set.append(after.enter_context(OTHERS[other]()))

        agent = type(
            "Sets", (CountAgent,), {"env_id": "LlamaFaulty-v0", "env_kwargs": {"fault": fault}}
        )()
        policy = make_policy(policy="score")
        learner = make_learner(policy, PPOConfig(batch_size=4, mini_batch_size=4, epochs=1))
        rollout = Rollout(agent, policy, n_envs=2, max_turns=9, batch_turns=4, seed=1)
        while not rollout.batch_ready:
            rollout.step()
        learner.update(rollout.take_batch())
        rollout.close()
    return [weight.double().sum().item() for weight in policy.model.parameters()]


@pytest.mark.parametrize(
    "other", ["no gradients", "inference mode", "float64", "another device", "autocast"]
)
def test_an_update_is_the_same_whatever_the_environment_sets(make_policy, other: str) -> None:
    from llamagym_tui.engine.learning.ppo import PPO

    assert weights_after(make_policy, PPO, other) == weights_after(make_policy, PPO, "")
