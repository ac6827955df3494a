"""Models and adapters that have moved house: what is named anew is taken, and what is missing is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from llamagym_tui import run_store
from llamagym_tui.config import LoraConfig, RunConfig
from llamagym_tui.engine.model.loading import load_model_and_tokenizer
from llamagym_tui.errors import ModelLoadError, RunStoreError, UsageError
from llamagym_tui.model_registry import fingerprint
from llamagym_tui.run_store import RunStore
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


def logits(loaded) -> torch.Tensor:
    ids = loaded.tokenizer("A hand of twelve.", return_tensors="pt")["input_ids"]
    return loaded.model(ids).logits


def test_an_adapter_without_a_tokenizer_takes_that_of_its_base_model(adapter: Path, base: Path):
    loaded = load_model_and_tokenizer(str(adapter), "cpu")
    assert loaded.tokenizer.chat_template


def test_an_adapter_is_put_on_its_base_model_where_that_is_now(adapter: Path, base: Path, tmp_path):
    before = logits(load_model_and_tokenizer(str(adapter), "cpu"))
    base.rename(tmp_path / "elsewhere")
    with pytest.raises(ModelLoadError, match=r"needs its base model .*base', which is not there: "):
        load_model_and_tokenizer(str(adapter), "cpu")
    file = adapter / "adapter_config.json"
    settings = json.loads(file.read_text())
    file.write_text(json.dumps(settings | {"base_model_name_or_path": str(tmp_path / "elsewhere")}))
    assert torch.equal(logits(load_model_and_tokenizer(str(adapter), "cpu")), before)


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


def test_a_run_goes_on_with_the_same_weights_at_another_path_and_no_others(
    base: Path, tmp_path: Path, tokenizer
):
    a_run(tmp_path / "run", base, weights=fingerprint(str(base)))

    def resumed(**given: str) -> RunConfig:
        return run_config(None, {"run_dir": str(tmp_path / "run"), "resume": True, **given})

    other = tmp_path / "other"
    changed = tiny_llama(len(tokenizer))
    changed.lm_head.weight.data += 1e-3
    changed.save_pretrained(other)
    moved = tmp_path / "moved"
    base.rename(moved)
    with pytest.raises(UsageError, match=r"where there is none any more; say .* with --model"):
        resumed()
    with pytest.raises(RunStoreError, match="and the weights differ"):
        RunStore.create(resumed(model=str(other)))
    config = resumed(model=str(moved))
    assert config.model == str(moved)
    RunStore.create(config).close()
    assert run_store.read_config(tmp_path / "run").model == str(moved)
    assert resumed().model == str(moved)


def test_a_fingerprint_is_that_of_the_weights_wherever_and_however_they_are_named(base: Path):
    first = fingerprint(str(base))
    assert first is not None
    (base / "config.json").write_text((base / "config.json").read_text() + " ")
    assert fingerprint(str(base / "model.safetensors")) == fingerprint(str(base)) == first
    content = bytearray((base / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (base / "model.safetensors").write_bytes(content)
    assert fingerprint(str(base)) != first
    assert fingerprint(str(base.parent / "absent")) is None
