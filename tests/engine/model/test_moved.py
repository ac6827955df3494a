"""Models and adapters that have moved house: what is named anew is taken, and what is missing is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from llamagym_tui.engine.model.loading import load_model_and_tokenizer
from llamagym_tui.errors import ModelLoadError, RunStoreError, UsageError
from llamagym_tui.runs.run_store import RunStore
from llamagym_tui.settings import LoraConfig, RunConfig
from llamagym_tui.setup.run_config import run_config
from tests.engine.conftest import tiny_llama


@pytest.fixture
def base(tmp_path: Path, tokenizer) -> Path:
    folder = tmp_path / "base"
    tiny_llama(len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def adapter(base: Path, tmp_path: Path) -> Path:
    """An adapter on the base, without a tokenizer of its own."""
    loaded = load_model_and_tokenizer(
        str(base), "cpu", full_finetuning=False, lora=LoraConfig(layers="all", r=2)
    )
    with torch.no_grad():
        for weight in loaded.model.pretrained_model.parameters():
            if weight.requires_grad:
                weight.add_(0.1)
    loaded.model.save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter"


def test_an_adapter_without_a_tokenizer_takes_that_of_its_base_model(adapter: Path, base: Path):
    loaded = load_model_and_tokenizer(str(adapter), "cpu")
    assert loaded.tokenizer.chat_template


def test_an_adapter_whose_base_model_has_moved_is_refused(adapter: Path, base: Path, tmp_path):
    base.rename(tmp_path / "elsewhere")
    with pytest.raises(ModelLoadError, match=r"needs its base model .*base', which is not there: "):
        load_model_and_tokenizer(str(adapter), "cpu")


def test_the_bundled_model_of_another_machine_is_that_of_this_one(tmp_path, adapter: Path):
    file = adapter / "adapter_config.json"
    config = json.loads(file.read_text())
    place = "/machine/of/others/llamagym_tui/bundled_model"
    file.write_text(json.dumps(config | {"base_model_name_or_path": place}))
    from llamagym_tui.engine.model.shape import base_of
    from llamagym_tui.engine.model.sources import bundled_model_path

    assert base_of(adapter) == str(bundled_model_path())


def a_run(folder: Path, model: Path, **settings) -> RunConfig:
    config = RunConfig(agent="blackjack", model=str(model), run_dir=str(folder), **settings)
    RunStore.create(config).close()
    (folder / "model").mkdir()
    return config


def test_a_run_goes_on_with_its_model_at_another_path(base: Path, tmp_path: Path):
    a_run(tmp_path / "run", base)

    def resumed(**given: str) -> RunConfig:
        return run_config(None, {"run_dir": str(tmp_path / "run"), "resume": True, **given})

    moved = tmp_path / "moved"
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(
        RunStoreError, match=r"has model .*base, not .*other; resume it with the same"
    ):
        RunStore(tmp_path / "run").check(resumed(model=str(other)))
    base.rename(moved)
    with pytest.raises(UsageError, match=r"where there is none any more; say .* with --model"):
        resumed()
    config = resumed(model=str(moved))
    RunStore(tmp_path / "run").check(config)
    assert config.model == str(moved)
