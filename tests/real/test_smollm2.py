"""A real language model, SmolLM2-135M: fetched once per machine, it plays, learns, is exported and comes back."""

from __future__ import annotations

import queue
from pathlib import Path

import pytest
import torch

from llamagym_tui.cli.export import export
from llamagym_tui.engine.model.loading import load_model_and_tokenizer
from llamagym_tui.engine.model.sources import model_folder
from llamagym_tui.errors import ModelLoadError
from llamagym_tui.protocol.events import Event, UpdateFinished
from llamagym_tui.runs.model_registry import full_name
from llamagym_tui.runs.run_store import RunStore, read_config
from llamagym_tui.setup.run_config import run_config
from llamagym_tui.trainer.session import Session

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The folder of the model; without a hub and without a package registry there is nothing to test."""
    try:
        folder = model_folder(full_name("smollm2"))
    except ModelLoadError as error:
        pytest.skip(str(error))
    assert folder is not None
    return folder


@pytest.fixture(scope="module")
def trained(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Event]]:
    """The folder and the events of a run of 6,000 hands with the defaults."""
    folder = tmp_path_factory.mktemp("real") / "run"
    config = run_config(
        "blackjack",
        {
            "run_dir": str(folder),
            "model": "smollm2",
            "seed": 1,
            "threads": 1,
            "episodes": 6000,
            "final_episodes": 0,
        },
    )
    events: list[Event] = []
    session = Session(config, RunStore.create(config), queue.SimpleQueue(), sinks=[events.append])
    assert session.run() == "stopped"
    return folder, events


def test_it_answers_in_prose_so_that_it_plays_by_score(trained) -> None:
    folder, _ = trained
    config = read_config(folder)
    assert (config.generation.policy, config.lora.layers) == ("score", "head")


def test_it_learns_blackjack_and_its_critic_sees(trained) -> None:
    _, events = trained
    updates = [event.stats for event in events if isinstance(event, UpdateFinished)]
    assert max(each.first_ratio for each in updates) < 1e-4
    assert updates[0].mean_return < -0.25
    # 700 hands an update, whose mean has a standard error of 0.036
    assert sum(each.mean_return for each in updates[-3:]) / 3 > -0.2
    assert max(each.explained_variance for each in updates[:5]) > 0.1


def test_what_is_exported_says_what_was_trained(trained, tmp_path) -> None:
    folder, _ = trained
    export(folder, tmp_path / "merged", merge=True)
    run = load_model_and_tokenizer(str(folder), "cpu")
    merged = load_model_and_tokenizer(str(tmp_path / "merged"), "cpu", full_finetuning=True)
    text = 'Your total: 20. Usable ace: no. Dealer shows: 5. {"action": '
    ids = torch.tensor([run.tokenizer(text).input_ids])
    with torch.no_grad():
        one = run.model.pretrained_model(input_ids=ids).logits.log_softmax(-1)
        other = merged.model.pretrained_model(input_ids=ids).logits.log_softmax(-1)
    assert (one - other).abs().max() < 1e-3
