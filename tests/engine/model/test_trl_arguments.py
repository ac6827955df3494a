"""Every argument of TRL's `from_pretrained`, and every object in place of a name, is obeyed or refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from transformers import LlamaForCausalLM, LlamaModel, T5Config, T5ForConditionalGeneration

from llamagym_tui import AutoModelForCausalLMWithValueHead
from llamagym_tui.config import LoraConfig
from llamagym_tui.engine.model import value_head
from llamagym_tui.engine.model.trl_arguments import model_options
from llamagym_tui.errors import ConfigError
from tests.engine.conftest import tiny_llama

from_pretrained = AutoModelForCausalLMWithValueHead.from_pretrained
LORA = peft.LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")

NOTHING_WRONG: dict[str, list[str]] = {
    "mismatched_keys": [],
    "missing_keys": [],
    "unexpected_keys": [],
}
"""What transformers says of a loading in which every weight was read."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny_llama(64).save_pretrained(tmp_path / "llama")
    return tmp_path / "llama"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"reward_adapter": "me/rewards"}, "reward_adapter='me/rewards' is refused, as rewards"),
        ({"reward_adapter_name": "other"}, "reward_adapter_name='other' is refused"),
        ({"summary_dropout_prob": 0.1}, "summary_dropout_prob=0.1 is refused"),
        ({"v_head_initializer_range": 0.2}, "v_head_initializer_range=0.2 is refused"),
        ({"v_head_init_strategy": "normal"}, "v_head_init_strategy='normal' is refused"),
        ({"is_trainable": False}, "is_trainable=False is refused, as what it holds is trained"),
        ({"output_loading_info": True}, "output_loading_info=True is refused"),
        ({"use_safetensors": False}, "use_safetensors=False is refused"),
        ({"dtype": torch.float32, "torch_dtype": torch.bfloat16}, "dtype and torch_dtype are one"),
        ({"load_in_8bit": True, "load_in_4bit": True}, "load_in_8bit and load_in_4bit and"),
        ({"load_in_8bit": True, "quantization_config": {}}, "load_in_8bit and quantization_config"),
        ({"peft_config": {"r": 8}}, "peft_config takes a LoraConfig, or .* not dict"),
    ],
)
def test_an_argument_of_trls_that_is_not_obeyed_is_refused_by_name(
    given: dict[str, Any], said: str, folder: Path
) -> None:
    with pytest.raises(ConfigError, match=said):
        from_pretrained(folder, **given)


def test_values_that_change_nothing_are_taken_and_torch_dtype_is_dtype(folder: Path) -> None:
    model = from_pretrained(
        folder,
        torch_dtype=torch.bfloat16,
        is_trainable=True,
        reward_adapter=None,
        use_safetensors=True,
        v_head_init_strategy=None,
    )
    assert model.causal_lm.dtype == torch.bfloat16
    inner = from_pretrained(folder.parent, subfolder="llama")
    assert inner.causal_lm.dtype == torch.float32


NOTHING_CHANGES: dict[str, list[Any]] = {
    "reward_adapter": [None],
    "reward_adapter_name": [None, "reward_adapter"],
    "summary_dropout_prob": [None, 0.0],
    "v_head_initializer_range": [None, 0.0],
    "v_head_init_strategy": [None],
    "is_trainable": [True],
    "output_loading_info": [False],
    "use_safetensors": [None, True],
}


def test_each_value_that_changes_nothing_is_kept_from_transformers() -> None:
    usual = {"dtype": torch.float32, "use_safetensors": True}
    for name, values in NOTHING_CHANGES.items():
        assert [model_options({name: value}) for value in values] == [usual] * len(values), name
    assert model_options({"torch_dtype": "auto", "dtype": "auto", "revision": "main"}) == {
        **usual,
        "dtype": "auto",
        "revision": "main",
    }
    eight = model_options({}, in_8_bit=True)["quantization_config"]
    assert (eight.load_in_8bit, eight.load_in_4bit) == (True, False)


def test_bits_are_requested_of_transformers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr(
        value_head.AutoModelForCausalLM,
        "from_pretrained",
        lambda name, **options: asked.update(options) or (tiny_llama(64), NOTHING_WRONG),
    )
    from_pretrained(folder, load_in_4bit=True)
    bits = asked["quantization_config"]
    assert (bits.load_in_8bit, bits.load_in_4bit) == (False, True)


def test_a_loaded_model_is_taken_with_its_weights_and_its_adapter(folder: Path) -> None:
    lm = tiny_llama(64)
    assert from_pretrained(lm).causal_lm is lm
    assert from_pretrained(lm, peft_config=LORA).is_adapted
    adapted = peft.get_peft_model(tiny_llama(64), LORA)
    assert from_pretrained(adapted).pretrained_model is adapted


def integrated(lm: LlamaForCausalLM) -> LlamaForCausalLM:
    lm.add_adapter(LORA)  # transformers' own way
    return lm


def two_adapters(lm: LlamaForCausalLM) -> Any:
    adapted = peft.get_peft_model(lm, LORA)
    adapted.add_adapter("second", LORA)
    return adapted


PROMPT = peft.PromptTuningConfig(num_virtual_tokens=2, task_type="CAUSAL_LM")
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "nothing": (lambda: None, "name or path of a model, or a loaded causal LM, not NoneType"),
    "a number": (lambda: 7, "not int"),
    "the same again": (lambda: from_pretrained(tiny_llama(64)), "not llamagym_tui's AutoModelFor"),
    "no head": (lambda: LlamaModel(tiny_llama(64).config), "not transformers's LlamaModel"),
    "an encoder": (
        lambda: T5ForConditionalGeneration(
            T5Config(vocab_size=64, d_model=16, num_layers=1, num_heads=2, d_ff=16)
        ),
        "not transformers's T5ForConditionalGeneration",
    ),
    "a prompt that is trained": (
        lambda: peft.get_peft_model(tiny_llama(64), PROMPT),
        "of the kind PROMPT_TUNING stands before the prompt, and is neither trained",
    ),
    "two adapters": (lambda: two_adapters(tiny_llama(64)), "this model has 'default', 'second'"),
    "another name": (
        lambda: peft.get_peft_model(tiny_llama(64), LORA, adapter_name="mine"),
        "One adapter named 'default' is trained and saved, and this model has 'mine'",
    ),
    "transformers' adapter": (lambda: integrated(tiny_llama(64)), "was put on by transformers"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_an_object_that_cannot_play_and_learn_is_refused_in_a_sentence(what: str) -> None:
    make, said = REFUSED[what]
    with pytest.raises(ConfigError, match=said):
        from_pretrained(make())


def test_what_is_about_loading_is_refused_for_a_loaded_model() -> None:
    with pytest.raises(ConfigError, match="dtype, load_in_8bit: this is about loading"):
        from_pretrained(tiny_llama(64), load_in_8bit=True, dtype=torch.float32)


def test_a_second_adapter_is_not_dropped_beside_the_first() -> None:
    adapted = peft.get_peft_model(tiny_llama(64), LORA)
    with pytest.raises(ConfigError, match="peft_config is for a new adapter, and this model has"):
        from_pretrained(adapted, peft_config=LoraConfig(r=4))


def test_dropout_of_an_adapter_is_left_out_with_a_warning() -> None:
    config = peft.LoraConfig(r=2, target_modules=["q_proj"], lora_dropout=0.1)
    with pytest.warns(UserWarning, match=r"lora_dropout=0\.1 is left out"):
        from_pretrained(tiny_llama(64), peft_config=config)
