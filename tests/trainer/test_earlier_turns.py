"""Prompts with earlier turns: a run finds how many help, and each kind of prompt trains an adapter on the head."""

from __future__ import annotations

import queue
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from llamagym_tui.engine.model.loading import load_model_and_tokenizer
from llamagym_tui.errors import ModelLoadError
from llamagym_tui.protocol.events import Event, SettingsMeasured, UpdateFinished
from llamagym_tui.runs.run_store import RunStore, read_config
from llamagym_tui.settings.typed import assigned
from llamagym_tui.setup.run_config import run_config
from llamagym_tui.trainer.builders import Builders
from llamagym_tui.trainer.session import Session

AGENT = str(Path(__file__).parent.parent / "errand_env.py")
FEW = ("ppo.batch_size=64", "n_envs=16")


def session(folder: Path, **given) -> tuple[Session, list[Event]]:
    config = run_config(
        AGENT, {"run_dir": str(folder), "threads": 1, "seed": 1, "final_episodes": 0, **given}
    )
    events: list[Event] = []
    return Session(
        config, RunStore.create(config), queue.SimpleQueue(), sinks=[events.append]
    ), events


def found_history(events: list[Event]) -> tuple[object, str]:
    for event in events:
        if isinstance(event, SettingsMeasured) and "history" in event.values:
            return event.values["history"], event.reasons["history"]
    raise AssertionError("it was not measured")


def test_what_is_asked_for_three_turns_later_gives_prompts_three_earlier_turns(tmp_path) -> None:
    run, events = session(tmp_path, episodes=600)
    assert run.run() == "stopped", run.error
    history, reason = found_history(events)
    assert history == 3
    assert reason.startswith("prompts have 3 earlier turns: they explain ")
    # The batch that showed it was played by other prompts, so nothing is learnt from it.
    updates = [event for event in events if isinstance(event, UpdateFinished)]
    assert updates[0].episodes > 256
    assert read_config(tmp_path).history == 3


def test_what_an_observation_says_itself_needs_no_earlier_turns(tmp_path) -> None:
    run, events = session(tmp_path, episodes=300, env={"is_told": True})
    assert run.run() == "stopped", run.error
    assert found_history(events)[0] == 0
    assert read_config(tmp_path).history == 0


def test_a_number_of_earlier_turns_that_is_given_is_not_measured(tmp_path) -> None:
    run, events = session(tmp_path, episodes=300, history="all")
    assert run.run() == "stopped", run.error
    with pytest.raises(AssertionError, match="not measured"):
        found_history(events)
    assert read_config(tmp_path).history == "all"


@pytest.fixture(scope="module")
def random_5m(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model of 5 M random weights, with the vocabulary of the bundled one."""
    folder = tmp_path_factory.mktemp("random")
    tokenizer = load_model_and_tokenizer("bundled").tokenizer
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=256,
        intermediate_size=768,
        num_hidden_layers=6,
        num_attention_heads=4,
        eos_token_id=tokenizer.eos_token_id,
    )
    lm = LlamaForCausalLM(config)
    assert 4_000_000 < lm.num_parameters() < 7_000_000
    lm.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("history", [0, 4, "all"])
@pytest.mark.parametrize(
    "model",
    [
        "bundled",
        "random",
        pytest.param(
            "smollm2", marks=[pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(900)]
        ),
    ],
)
def test_an_update_moves_an_adapter_on_the_head(tmp_path, model, history, random_5m) -> None:
    policy, batch, learner = played(tmp_path, random_5m if model == "random" else model, history)
    before = policy.narrow.up.detach().clone()
    stats = learner.update(batch)
    assert stats.first_ratio < 1e-3
    assert stats.approx_kl > 0
    assert not torch.equal(policy.narrow.up, before)


def played(folder: Path, model: str, history: int | str):
    """A policy, a batch of 64 turns that it has played, and its learner."""
    config = run_config(
        AGENT,
        {
            "run_dir": str(folder),
            "model": model,
            "history": history,
            "env": {"idle": 5},
            "threads": 1,
            "seed": 1,
            **assigned(FEW),
        },
    )
    builders = Builders(config)
    agent = builders.agent()
    try:
        builders.fetch_model(lambda words: None)
    except ModelLoadError as error:
        pytest.skip(str(error))
    policy = builders.policy(agent, builders.model())
    learner = builders.learner(policy)
    rollout = builders.rollout(agent, policy, seed=1, emit=lambda event: None)
    while not rollout.batch_ready:
        rollout.step()
    batch = rollout.take_batch()
    rollout.close()
    return policy, batch, learner
