"""GGUF files that are whole, in parts, or say of their model what transformers does not read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from llamagym_tui.engine.model import gguf_files
from llamagym_tui.engine.model.gguf_files import converted, llama3_scaling
from llamagym_tui.errors import ModelLoadError
from tests.engine.model.gguf_writer import write_gguf
from tests.engine.small_tokenizers import qwen_like

LLAMA_3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
LINEAR = {"rope_type": "linear", "factor": 4.0}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("LLAMAGYM_TUI_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return qwen_like()


def a_llama(tokenizer: Any, **rope: Any) -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=32,
        initializer_range=0.3,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0} | rope,
    )
    return LlamaForCausalLM(config).eval()


def divisors(lm: Any) -> np.ndarray:
    """What the frequencies of a model are divided by."""
    plain = 10_000.0 ** (-torch.arange(16) / 16)
    return (plain / lm.model.rotary_emb.inv_freq).numpy()


@torch.no_grad()
def difference(lm: Any, folder: Path) -> float:
    """Nats by which the model in a folder differs, over 200 tokens."""
    ids = (torch.arange(200) * 37 % 290)[None]
    read = LlamaForCausalLM.from_pretrained(folder)
    return float((lm(ids).logits.log_softmax(-1) - read(ids).logits.log_softmax(-1)).abs().max())


def scaled_linearly(writer: gguf.GGUFWriter) -> None:
    writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
    writer.add_rope_scaling_factor(4.0)


def scaled_as_of_old(writer: gguf.GGUFWriter) -> None:
    writer.add_float32("llama.rope.scale_linear", 4.0)


def not_scaled(writer: gguf.GGUFWriter) -> None:
    writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)
    writer.add_rope_scaling_factor(4.0)


@pytest.mark.parametrize(
    ("rope", "more"),
    [
        ({}, not_scaled),
        ({"rope_theta": 500_000.0}, not_scaled),
        (LINEAR, scaled_linearly),
        (LINEAR, scaled_as_of_old),
    ],
)
def test_positions_are_scaled_as_the_header_says(tmp_path, tokenizer, rope, more):
    lm = a_llama(tokenizer, **rope)
    folder = converted(write_gguf(tmp_path / "a.gguf", lm, tokenizer, more))
    assert difference(lm, folder) < 1e-4


def test_positions_of_llama_3_are_scaled_as_its_tensor_of_frequencies_says(tmp_path, tokenizer):
    lm = a_llama(tokenizer, **LLAMA_3)
    tensors = {"rope_freqs.weight": divisors(lm)}
    folder = converted(write_gguf(tmp_path / "a.gguf", lm, tokenizer, tensors=tensors))
    assert difference(lm, folder) < 1e-4
    assert LlamaConfig.from_pretrained(folder).rope_parameters == LLAMA_3 | {"rope_theta": 10_000.0}


def test_factors_that_are_not_those_of_llama_3_are_refused():
    with pytest.raises(ModelLoadError, match="in another way than Llama 3"):
        llama3_scaling("a.gguf", np.array([1.0, 2, 1, 2, 3, 8, 1, 8]), 1e4)


def in_two_parts(writer: gguf.GGUFWriter) -> None:
    writer.add_uint16("split.no", 1)
    writer.add_uint16("split.count", 2)


def an_adapter(writer: gguf.GGUFWriter) -> None:
    writer.add_type("adapter")


REFUSED = {
    "split": (in_two_parts, r"a\.gguf is one of 2 parts of a model: merge them with llama-gguf-split"),
    "adapter": (an_adapter, "a.gguf is no whole model"),
    "scale": (lambda w: w.add_attention_scale(0.7), r"has attention\.scale = 0\.69"),
    "cap": (lambda w: w.add_final_logit_softcapping(30.0), r"final_logit_softcapping = 30\.0 in its"),
    "window": (lambda w: w.add_sliding_window(48), r"has attention\.sliding_window = 48"),
    "attention": (lambda w: w.add_rope_scaling_attn_factors(1.25), r"rope\.scaling\.attn_factor = 1\.25"),
    "longrope": (
        lambda w: w.add_rope_scaling_type(gguf.RopeScalingType.LONGROPE),
        r"rope\.scaling\.type 'longrope', which is not read",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def test_what_a_header_says_and_transformers_does_not_read_is_refused_by_name(
    tmp_path, tokenizer, cache, kind
):
    more, said = REFUSED[kind]
    file = write_gguf(tmp_path / "a.gguf", a_llama(tokenizer), tokenizer, more)
    with pytest.raises(ModelLoadError, match=said):
        converted(file)
    assert not any(cache.iterdir())


def test_keys_that_change_nothing_are_accepted(tmp_path, tokenizer):
    def more(writer: gguf.GGUFWriter) -> None:
        writer.add_logit_scale(1.0)
        writer.add_sliding_window(4096)
        writer.add_key_length(32)

    lm = a_llama(tokenizer)
    assert difference(lm, converted(write_gguf(tmp_path / "a.gguf", lm, tokenizer, more))) < 1e-4


def test_a_header_that_lacks_a_size_is_refused_before_a_model_of_another_size_is_made(
    tmp_path, tokenizer, monkeypatch
):
    monkeypatch.setattr("transformers.AutoConfig.from_pretrained", lambda **source: 1 / 0)
    file = write_gguf(tmp_path / "a.gguf", a_llama(tokenizer), tokenizer, header=False)
    with pytest.raises(ModelLoadError, match=r"its header lacks context_length, embedding_length"):
        converted(file)
    bare = write_gguf(tmp_path / "b.gguf", a_llama(tokenizer), tokenizer, architecture="")
    with pytest.raises(ModelLoadError, match=r"b\.gguf is no whole model"):
        converted(bare)


def test_a_tensor_that_is_missing_or_left_over_is_refused_by_name(tmp_path, tokenizer, cache):
    lm = a_llama(tokenizer)
    short = write_gguf(tmp_path / "a.gguf", lm, tokenizer, leave_out="blk.0.ffn_up.weight")
    with pytest.raises(ModelLoadError, match=r"lacks the weight model\.layers\.0\.mlp\.up_proj"):
        converted(short)
    bias = {"blk.0.attn_q.bias": np.ones((64, 1), dtype=np.float32)}
    long = write_gguf(tmp_path / "b.gguf", lm, tokenizer, tensors=bias)
    with pytest.raises(ModelLoadError, match=r"has 37,824 weights, of which transformers reads"):
        converted(long)
    assert not any(cache.iterdir())


def test_a_folder_that_an_earlier_version_has_made_is_not_taken(tmp_path, tokenizer, monkeypatch):
    file = write_gguf(tmp_path / "a.gguf", a_llama(tokenizer), tokenizer)
    now = converted(file)
    monkeypatch.setattr(gguf_files, "CONVERSION", gguf_files.CONVERSION + 1)
    assert converted(file) != now
