"""A supervised start and the PPO that goes on from it, in this process, on the bundled model."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from llamagym_tui import run_store
from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.cli import headless, headless_sft
from llamagym_tui.config import PPOConfig, RunConfig, SFTSettings
from llamagym_tui.demos import training_data
from llamagym_tui.protocol.events import UpdateFinished

SMALL = PPOConfig(batch_size=64, mini_batch_size=64, critic_warmup_updates=0)


@pytest.mark.slow
@pytest.mark.parametrize("full", [True, False], ids=["full", "adapter"])
def test_ppo_goes_on_from_the_taught_policy_and_keeps_it_as_its_reference(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], full: bool
) -> None:
    shipped = training_data.shipped(BlackjackAgent())
    config = RunConfig(
        agent="blackjack",
        run_dir=str(tmp_path / "run"),
        n_envs=32,
        threads=1,
        full_finetuning=full,
        sft_data=str(shipped),
        sft=SFTSettings(max_examples=64, min_steps=20, lr=2e-3),
        ppo=SMALL,
    )
    headless_sft.warm_start(config, episodes=0, json_output=True)
    taught = json.loads(capfd.readouterr().out)
    assert taught["last_loss"] < 0.7 * taught["first_loss"]

    headless.train(msgspec.structs.replace(config, resume=True, episodes=100), json_output=True)
    updates = [
        event
        for event in run_store.read_events(config.run_dir)
        if isinstance(event, UpdateFinished)
    ]
    # Were the reference the model before the warm start, the first batch would be some tenths of a nat away from it.
    assert abs(updates[0].stats.kl_ref) < 1e-3
    assert updates[0].stats.first_ratio < 1e-3
