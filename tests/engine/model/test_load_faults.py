"""Models that do not load, and the messages for them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AddedToken,
    BertConfig,
    BertForMaskedLM,
    T5Config,
    T5ForConditionalGeneration,
)

from llamagym_tui.engine.model.loading import load_model_and_tokenizer
from llamagym_tui.errors import ModelLoadError
from llamagym_tui.settings import LoraConfig
from tests.engine.conftest import tiny_llama
from tests.engine.small_tokenizers import CHATML, qwen_like

TINY = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
}


@pytest.mark.parametrize(
    "model",
    [
        BertForMaskedLM(BertConfig(vocab_size=64, **TINY)),
        T5ForConditionalGeneration(
            T5Config(vocab_size=64, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
        ),
    ],
    ids=["encoder", "encoder-decoder"],
)
def test_a_model_that_is_not_causal_is_refused(model, tmp_path, tokenizer):
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ModelLoadError, match="is no causal language model"):
        load_model_and_tokenizer(str(tmp_path), "cpu")


def test_a_model_with_code_of_its_own_is_refused_and_the_code_not_run(tmp_path, tokenizer):
    tiny_llama(len(tokenizer)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    own = {
        "model_type": "strange",
        "auto_map": {"AutoConfig": "strange.Config", "AutoModelForCausalLM": "strange.LM"},
    }
    (tmp_path / "config.json").write_text(json.dumps({**config, **own}))
    (tmp_path / "strange.py").write_text("raise SystemExit('this code was run')")
    with pytest.raises(ModelLoadError, match="code of its own, which is never run"):
        load_model_and_tokenizer(str(tmp_path), "cpu")


def test_pickled_weights_are_refused_unread(tmp_path, tokenizer):
    lm = tiny_llama(len(tokenizer))
    lm.config.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    torch.save(lm.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelLoadError, match="has no safetensors, and nothing else is read"):
        load_model_and_tokenizer(str(tmp_path), "cpu")


UP = "model.layers.1.mlp.up_proj.weight"


def written(folder: Path, tokenizer: Any, lm: Any) -> Path:
    lm.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def change(file: Path, how: Callable[[dict[str, torch.Tensor]], object]) -> None:
    weights = load_file(file)
    how(weights)
    save_file(weights, file, {"format": "pt"})


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (lambda w: w.pop(UP), rf"lacks the weight {UP} \(1 in all\): take"),
        (lambda w: w.update(odd=torch.ones(1)), "has no place for the weight odd"),
        (
            lambda w: w.update({UP: w[UP][1:].clone()}),
            rf"has another shape of the weight {UP}",
        ),
    ],
)
def test_a_model_whose_files_have_not_its_weights_is_refused_by_name(
    tmp_path, tokenizer, how, said
):
    folder = written(tmp_path / "a", tokenizer, tiny_llama(len(tokenizer)))
    change(folder / "model.safetensors", how)
    with pytest.raises(ModelLoadError, match=said):
        load_model_and_tokenizer(str(folder), "cpu")


@pytest.fixture(scope="module")
def saved_adapter(tmp_path_factory, tokenizer) -> Path:
    """The folder of an adapter of rank 2, on a model beside it."""
    at = tmp_path_factory.mktemp("adapter")
    base = written(at / "base", tokenizer, tiny_llama(len(tokenizer)))
    lora = LoraConfig(layers="all", r=2)
    loaded = load_model_and_tokenizer(str(base), "cpu", full_finetuning=False, lora=lora)
    loaded.model.save_pretrained(at / "adapter")
    return at / "adapter"


DOWN = "base_model.model.model.layers.0.mlp.down_proj.lora_A.weight"


def test_an_adapter_that_does_not_fit_its_settings_and_its_base_is_refused(tmp_path, saved_adapter):
    folder = tmp_path / "changed"
    shutil.copytree(saved_adapter, folder)
    change(folder / "adapter_model.safetensors", lambda w: w.update({DOWN: w[DOWN][1:].clone()}))
    with pytest.raises(ModelLoadError, match=rf"^The adapter in '{folder}' has other weights"):
        load_model_and_tokenizer(str(folder), "cpu")
    assert load_model_and_tokenizer(str(saved_adapter), "cpu").model.is_adapted


WITH_TURNS = CHATML.replace("<|im_start|>", "<|turn|>")


@pytest.mark.parametrize(
    ("template", "token"),
    [
        (WITH_TURNS, AddedToken("<|turn|>", special=True)),
        (CHATML, AddedToken("<|turn|>", special=False)),
        (None, AddedToken("turn")),
    ],
)
def test_a_tokenizer_with_a_token_that_the_model_has_no_row_for_is_refused(
    tmp_path, template, token
):
    tokenizer = qwen_like()
    lm = tiny_llama(len(tokenizer))
    tokenizer.add_tokens([token])
    tokenizer.chat_template = template
    folder = written(tmp_path / "a", tokenizer, lm)
    with pytest.raises(
        ModelLoadError, match=r"has 300 tokens and the model 299 rows of embeddings"
    ):
        load_model_and_tokenizer(str(folder), "cpu")
