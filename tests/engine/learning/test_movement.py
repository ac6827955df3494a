"""What is trained moves: nothing to train is refused at once, and an update that stands still has a cause."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import peft
import pytest
import torch
from msgspec.structs import replace

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.engine.learning import head_steps
from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.errors import ConfigError, StoodStill
from llamagym_tui.settings import PPOConfig, RunConfig
from tests.engine.conftest import loop_of, tiny_llama
from tests.engine.learning.test_head_ppo import OBSERVATIONS, head_learner, head_policy, play
from tests.engine.learning.test_ppo import QUICK, collect, weights

LORA = peft.LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")
TALK = [
    {"role": "system", "content": "Play."},
    {"role": "user", "content": "You see 1."},
    {"role": "assistant", "content": '{"action": 1}'},
]
ONE_STEP = replace(QUICK, mini_batch_size=1000, epochs=1)


def frozen(lm: Any) -> Any:
    return lm.requires_grad_(False)


def used_only(lm: Any) -> Any:
    return frozen(peft.get_peft_model(lm, LORA))


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (frozen, "Nothing of the model would be trained: requires_grad is off for all its weights"),
        (used_only, "load an adapter with is_trainable=True"),
        (lambda lm: lm.to(torch.bfloat16), "Weights of bfloat16 are too coarse .*float32, or give"),
        (lambda lm: lm.half(), "Weights of float16 are too coarse"),
    ],
)
def test_nothing_to_train_is_refused_before_the_first_episode(
    tokenizer: Any, made: Callable[[Any], Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        BlackjackAgent(made(tiny_llama(len(tokenizer))), tokenizer)


@pytest.mark.parametrize(
    ("settings", "before", "said"),
    [
        ({"lr": 1e-30, "lr_final": 1e-30}, None, "of 1e-30 are rounded away in weights of float32"),
        ({}, frozen, "no gradient reaches any of them"),
        ({"lr_final": 0.0, "decay_updates": 1}, None, "learning rate has come to 0 .ppo.lr_final"),
    ],
)
def test_an_update_that_left_every_weight_where_it_was_is_an_error_with_its_cause(
    make_policy: Any, settings: dict[str, Any], before: Callable[[Any], Any] | None, said: str
) -> None:
    policy = make_policy()
    ppo = PPO(policy, replace(ONE_STEP, **settings))
    ppo.updates = 1  # a schedule of one update has ended
    then = weights(policy)
    if before is not None:
        before(policy.model.pretrained_model)
    with pytest.raises(StoodStill, match=f"Update 2 has left every weight .*{said}"):
        ppo.update(collect(policy, episodes=8))
    if before is None:
        assert torch.equal(then, weights(policy))


def test_a_batch_without_anything_to_follow_changes_nothing_and_is_no_error(
    make_policy: Any,
) -> None:
    policy = make_policy()
    alone = replace(ONE_STEP, kl_coef=0.0, kl_coef_final=0.0, value_coef=0.0)
    alone = replace(alone, entropy_coef=0.0, entropy_coef_final=0.0)
    batch = collect(policy, episodes=8, turns=1)
    for trajectory in batch:
        segment = trajectory.segments[0]
        segment.turns[0] = replaced_reward(segment.turns[0])
    then = weights(policy)
    stats = PPO(policy, alone).update(batch)
    assert stats.grad_norm == 0
    assert torch.equal(then, weights(policy))


def replaced_reward(turn: Any) -> Any:
    import dataclasses

    return dataclasses.replace(turn, reward=1.0, value=1.0)


def test_an_adapter_on_the_head_that_sees_one_state_alone_says_so(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = head_policy(tokenizer)
    monkeypatch.setattr("tests.engine.learning.test_head_ppo.OBSERVATIONS", OBSERVATIONS[:1])
    monkeypatch.setattr(head_steps, "measure", lambda down, parts: None)
    with pytest.raises(StoodStill, match="sees in what states differ, and these differ in nothing"):
        head_learner(policy).update(play(policy, 20))


def test_steps_of_a_head_that_went_too_far_and_were_undone_are_no_stand_still(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = head_policy(tokenizer)
    monkeypatch.setattr(head_steps.HeadSteps, "_kl", lambda self, objective: 1e9)
    learner = head_learner(policy)
    learner.update(play(policy))
    assert not policy.model.causal_lm.lm_head.lora_B["default"].weight.any()


def test_with_demonstrations_a_default_adapter_stays_in_all_layers(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from llamagym_tui.engine import llamagym_loop
    from llamagym_tui.engine.model.value_head import AutoModelForCausalLMWithValueHead

    model = AutoModelForCausalLMWithValueHead.from_pretrained(
        tiny_llama(len(tokenizer)), peft_config=LORA
    )
    model.has_default_adapter = True
    monkeypatch.setattr(llamagym_loop, "learn_from", lambda *args, **given: None)
    agent = BlackjackAgent(model, tokenizer, sft_warm_start=True)
    assert loop_of(agent).policy.narrow is None


def test_a_run_with_a_setting_that_its_adapter_has_no_use_for_does_not_begin(
    tokenizer: Any,
) -> None:
    from llamagym_tui.trainer.builders import Builders

    policy = head_policy(tokenizer)
    whole_batch = PPOConfig(batch_size=64, mini_batch_size=64)
    config = RunConfig(agent="blackjack", run_dir="", ppo=whole_batch)
    assert isinstance(Builders(config).learner(policy), PPO)
    config = RunConfig(agent="blackjack", run_dir="", ppo=PPOConfig(epochs=4, target_kl=0.1))
    with pytest.raises(ConfigError, match=r"ppo\.epochs, ppo\.target_kl have no effect"):
        Builders(config).learner(policy)
