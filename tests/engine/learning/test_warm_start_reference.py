"""A warm start amid a run: the policy after it is the new reference of PPO."""

from __future__ import annotations

import pytest
import torch

from llamagym_tui.config import PPOConfig, RunConfig
from llamagym_tui.demos.training_data import TrainingData
from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.trainer.builders import Builders


@pytest.mark.parametrize("lora", [False, True])
def test_a_warm_start_amid_a_run_makes_a_new_reference(make_policy, monkeypatch, tmp_path, lora):
    policy = make_policy(lora=lora)
    ppo = PPO(policy, PPOConfig())

    def trained(policy, *_, **__) -> None:
        with torch.no_grad():
            for weight in policy.model.pretrained_model.parameters():
                if weight.requires_grad:
                    weight += 0.1

    monkeypatch.setattr("llamagym_tui.trainer.builders.train_on", trained)
    before, builders = ppo.reference, Builders(RunConfig(agent="blackjack", run_dir=str(tmp_path)))
    data = TrainingData(tmp_path, [], "sft")
    builders.warm_start(
        policy, ppo, data, progress=lambda step, steps, loss: None, should_stop=lambda: False
    )
    assert ppo.reference is not before
    assert (tmp_path / "start").is_dir(), "a resumed run needs it"
    weights = [
        weight for weight in policy.model.pretrained_model.parameters() if weight.requires_grad
    ]
    kept = [then for _, then in ppo.reference.start]
    assert all(torch.equal(a, b) for a, b in zip(weights, kept, strict=True))
