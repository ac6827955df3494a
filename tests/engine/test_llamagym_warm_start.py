"""`Agent(sft_warm_start=True)`: trained on demonstrations before the first episode, those that ship or a named file."""

from __future__ import annotations

from pathlib import Path

import pytest

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.demos import files as demo_files
from llamagym_tui.demos import training_data
from llamagym_tui.engine.model.loading import load_model_and_tokenizer
from llamagym_tui.errors import ConfigError, DemoFileError
from tests.engine.conftest import loop_of


@pytest.fixture
def few(tmp_path: Path) -> Path:
    shipped = training_data.shipped(BlackjackAgent())
    assert shipped is not None
    path = tmp_path / "few.jsonl"
    demo_files.write(path, demo_files.read(shipped)[:16])
    return path


@pytest.mark.slow
def test_an_agent_is_trained_on_demonstrations_before_its_first_episode_and_that_is_its_reference(
    few: Path,
) -> None:
    loaded = load_model_and_tokenizer("bundled", "cpu")
    before = loaded.model.causal_lm.get_input_embeddings().weight.detach().clone()
    agent = BlackjackAgent(loaded.model, loaded.tokenizer, sft_warm_start=True, sft_data=str(few))
    after = loaded.model.causal_lm.get_input_embeddings().weight
    assert not before.equal(after)
    reference = loop_of(agent).learner.reference
    assert reference is not None
    assert next(then for weight, then in reference.start if weight is after).equal(after)
    assert agent.act((21, 5, 0), greedy=True) == 0


def test_a_faulty_file_is_refused_by_its_line(few: Path) -> None:
    few.write_bytes(few.read_bytes() + b"{}\n")
    loaded = load_model_and_tokenizer("bundled", "cpu")
    with pytest.raises(DemoFileError, match="line 17: These fields are missing"):
        BlackjackAgent(loaded.model, loaded.tokenizer, sft_warm_start=True, sft_data=str(few))


def test_a_file_without_a_warm_start_is_refused(few: Path) -> None:
    with pytest.raises(ConfigError, match="set sft_warm_start=True too"):
        BlackjackAgent(sft_data=str(few))
