"""Every model of the registry: its number of weights, and a small one of its architecture that plays, learns and loads
again.

`SHAPES` are the published configurations, as far as they differ from transformers' defaults; nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from llamagym_tui.config import PPOConfig
from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.model.loading import load_model_and_tokenizer
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.model_registry import BUNDLED, ENTRIES, ModelEntry
from tests.engine.conftest import REPLIES
from tests.engine.learning.test_ppo import collect

PARTS = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
)
TIED = {"tie_word_embeddings": True}


def shape(architecture: str, *sizes: int, keys: int, **more: Any) -> dict[str, Any]:
    """Arguments of `AutoConfig.for_model`: the sizes of `PARTS`, key-value heads, and what else is not the default."""
    return {
        "model_type": architecture,
        **dict(zip(PARTS, sizes, strict=True)),
        "num_key_value_heads": keys,
        **more,
    }


SHAPES = {
    "HuggingFaceTB/SmolLM2-135M-Instruct": shape("llama", 49152, 576, 1536, 30, 9, keys=3, **TIED),
    "google/gemma-3-270m-it": shape(
        "gemma3_text", 262144, 640, 2048, 18, 4, keys=1, head_dim=256, sliding_window=512, **TIED
    ),
    "HuggingFaceTB/SmolLM2-360M-Instruct": shape("llama", 49152, 960, 2560, 32, 15, keys=5, **TIED),
    "Qwen/Qwen2.5-0.5B-Instruct": shape("qwen2", 151936, 896, 4864, 24, 14, keys=2, **TIED),
    "Qwen/Qwen3-0.6B": shape("qwen3", 151936, 1024, 3072, 28, 16, keys=8, head_dim=128, **TIED),
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0": shape("llama", 32000, 2048, 5632, 22, 32, keys=4),
    "meta-llama/Llama-3.2-1B-Instruct": shape(
        "llama", 128256, 2048, 8192, 16, 32, keys=8, head_dim=64, **TIED
    ),
    "Qwen/Qwen2-1.5B-Instruct": shape("qwen2", 151936, 1536, 8960, 28, 12, keys=2, **TIED),
    "HuggingFaceTB/SmolLM-1.7B-Instruct": shape(
        "llama", 49152, 2048, 8192, 24, 32, keys=32, **TIED
    ),
    "microsoft/phi-2": shape("phi", 51200, 2560, 10240, 32, 32, keys=32, partial_rotary_factor=0.4),
    "microsoft/Phi-3-mini-4k-instruct": shape(
        "phi3", 32064, 3072, 8192, 32, 32, keys=32, sliding_window=2047
    ),
    "meta-llama/Llama-2-7b-chat-hf": shape("llama", 32000, 4096, 11008, 32, 32, keys=32),
}
PUBLISHED = [entry for entry in ENTRIES if entry.name != BUNDLED]
by_name = pytest.mark.parametrize("entry", PUBLISHED, ids=lambda entry: entry.name)


def small(entry: ModelEntry, vocabulary: int) -> Any:
    """The model's own configuration with two narrow layers."""
    full = SHAPES[entry.name]
    narrow = shape(
        full["model_type"],
        vocabulary,
        40,
        48,
        2,
        4,
        keys=2 if full["num_key_value_heads"] < full["num_attention_heads"] else 4,
    )
    narrow |= {name: 8 for name in ("head_dim", "sliding_window") if name in full}
    ids = {"bos_token_id": None, "eos_token_id": 1, "pad_token_id": 0}
    return AutoConfig.for_model(**{**full, **narrow, **ids})


def test_every_entry_has_a_shape_here():
    assert set(SHAPES) == {entry.name for entry in PUBLISHED}


@by_name
def test_an_entry_states_the_number_of_weights_of_its_model(entry):
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**SHAPES[entry.name]))
    assert model.num_parameters() == entry.parameters


def test_the_bundled_entry_states_what_the_bundled_model_is():
    loaded, entry = load_model_and_tokenizer(BUNDLED, "cpu"), ENTRIES[0]
    assert (entry.name, entry.parameters) == (BUNDLED, loaded.parameters)
    assert all(weight.requires_grad for weight in loaded.model.parameters())


def different() -> Iterator[Any]:
    """An entry of each kind: some differ in sizes alone, and small ones of them are the same.

    One of each architecture is not slow.
    """
    kinds = {
        (str(small(entry, 100)), entry.lora, str(entry.generation)): entry
        for entry in reversed(PUBLISHED)
    }
    known = set()
    for entry in kinds.values():
        architecture = SHAPES[entry.name]["model_type"]
        marks = [pytest.mark.slow] if architecture in known else []
        known.add(architecture)
        yield pytest.param(entry, id=entry.name, marks=marks)


@pytest.mark.parametrize("entry", different())
def test_a_small_model_of_each_kind_plays_learns_and_loads_again(entry, tmp_path, tokenizer):
    torch.manual_seed(0)
    # Some more rows than tokens: transformers' class for Qwen2 adds a token of its own to any tokenizer.
    AutoModelForCausalLM.from_config(small(entry, len(tokenizer) + 8)).save_pretrained(
        tmp_path / "base"
    )
    tokenizer.save_pretrained(tmp_path / "base")
    loaded = load_model_and_tokenizer(
        str(tmp_path / "base"), "cpu", full_finetuning=False, lora=entry.lora, template_arguments={}
    )
    policy = Policy(loaded.model, loaded.tokenizer, entry.generation, REPLIES)
    stats = PPO(policy, PPOConfig(epochs=1, mini_batch_size=8, critic_warmup_updates=0)).update(
        collect(policy, 8)
    )
    assert stats.first_ratio < 1e-3
    assert stats.grad_norm > 0
    loaded.model.save_pretrained(tmp_path / "trained")
    tokenizer.save_pretrained(tmp_path / "trained")
    again = load_model_and_tokenizer(str(tmp_path / "trained"), "cpu")
    ids = torch.tensor([[1, 2, 3, 4]])
    with torch.no_grad():
        before, after = loaded.model(ids), again.model.eval()(ids)
    assert torch.allclose(before.logits, after.logits, atol=1e-5)
    assert torch.allclose(before.values, after.values, atol=1e-5)
