"""Loading: the bundled model with no network, any causal LM, adapters, and clear messages when it fails."""

from __future__ import annotations

import json
import time

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.model.loading import (
    LARGEST_FULLY_TRAINED,
    is_fully_trained,
    load_model_and_tokenizer,
    weights_type,
)
from llamagym_tui.engine.model.value_head import (
    AutoModelForCausalLMWithValueHead,
    ValueHead,
    with_adapter,
)
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.errors import ModelLoadError
from llamagym_tui.runs.model_registry import ModelEntry
from llamagym_tui.settings import GenerationConfig, LoraConfig, PPOConfig
from tests.engine.conftest import tiny_llama
from tests.engine.learning.test_ppo import collect
from tests.engine.model.test_architectures import SMALL


def test_the_bundled_model_is_small_and_loads_with_no_network(bundled):
    assert sum(file.stat().st_size for file in bundled.iterdir() if file.is_file()) < 5_000_000
    loaded = load_model_and_tokenizer("bundled", "cpu")
    assert loaded.model.causal_lm.config.architectures == ["LlamaForCausalLM"]
    assert loaded.parameters <= 1_200_000
    assert all(weight.requires_grad for weight in loaded.model.parameters())


def test_the_bundled_model_is_a_standard_folder_for_transformers(bundled):
    lm, tokenizer = (
        kind.from_pretrained(bundled, local_files_only=True)
        for kind in (AutoModelForCausalLM, AutoTokenizer)
    )
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Your total: 15."}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    (ids,) = lm.generate(**prompt, max_new_tokens=8, do_sample=False)
    reply = tokenizer.decode(ids[prompt["input_ids"].shape[1] :], skip_special_tokens=True)
    assert json.loads(reply)["action"] in (0, 1)


def test_a_new_value_head_predicts_zero():
    head = ValueHead(16)
    hidden = torch.randn(5, 16)
    assert head(hidden).tolist() == [0] * 5
    torch.nn.init.ones_(head.out.weight)
    head.out.bias.data += 0.5
    expected = 0.5 + torch.tanh(hidden @ head.dense.weight.T + head.dense.bias).sum(-1)
    torch.testing.assert_close(head(hidden.double()), expected)
    assert head.dense.weight.shape == (128, 16)


@pytest.mark.parametrize(
    "kind",
    ["qwen2", pytest.param("gemma2", marks=pytest.mark.slow)],
)
def test_any_architecture_loads_updates_saves_and_loads_again(kind, tmp_path, tokenizer):
    torch.manual_seed(0)
    settings = SMALL | {"vocab_size": len(tokenizer)}
    AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **settings)).save_pretrained(
        tmp_path / "m"
    )
    model = AutoModelForCausalLMWithValueHead.from_pretrained(tmp_path / "m")
    policy = Policy(model, tokenizer, GenerationConfig(max_new_tokens=4))
    config = PPOConfig(epochs=1, mini_batch_size=8, critic_warmup_updates=0, kl_coef=0.1)
    stats = PPO(policy, config).update(collect(policy, episodes=8))
    assert stats.first_ratio < 1e-3
    model.save_pretrained(tmp_path / "saved")
    again = AutoModelForCausalLMWithValueHead.from_pretrained(tmp_path / "saved").eval()
    ids = torch.tensor([[1, 2, 3, 4]])
    with torch.no_grad():
        before, after = model(ids), again(ids)
    assert torch.allclose(before.logits, after.logits, atol=1e-5)
    assert torch.allclose(before.values, after.values, atol=1e-5)


def test_an_adapter_is_saved_as_a_peft_folder_and_loads_again(tmp_path, tokenizer):
    tiny_llama(len(tokenizer)).save_pretrained(tmp_path / "m")
    tokenizer.save_pretrained(tmp_path / "m")
    loaded = load_model_and_tokenizer(
        str(tmp_path / "m"),
        "cpu",
        full_finetuning=False,
        lora=LoraConfig(layers="all", r=4, alpha=8.0),
    )
    assert loaded.model.is_adapted
    trained = sum(p.numel() for p in loaded.model.pretrained_model.parameters() if p.requires_grad)
    assert trained < loaded.parameters / 2
    policy = Policy(loaded.model, loaded.tokenizer, GenerationConfig(max_new_tokens=4))
    PPO(policy, PPOConfig(epochs=1, critic_warmup_updates=0)).update(collect(policy, episodes=8))
    loaded.model.save_pretrained(tmp_path / "adapter")
    tokenizer.save_pretrained(tmp_path / "adapter")
    assert (tmp_path / "adapter" / "adapter_config.json").is_file()
    again = load_model_and_tokenizer(str(tmp_path / "adapter"), "cpu")
    ids = torch.tensor([[1, 2, 3, 4]])
    with torch.no_grad():
        assert torch.allclose(loaded.model(ids).logits, again.model.eval()(ids).logits, atol=1e-5)


@pytest.mark.parametrize(
    ("lora", "rank", "scale", "trained"),
    [
        (LoraConfig(layers="all"), 16, 32.0, 14),
        (LoraConfig(layers="all", r=3, alpha=5.0, target_modules=["q_proj"]), 3, 5.0, 2),
        (LoraConfig(layers="head"), 64, 64.0, 1),
        (LoraConfig(layers="head", r=3, alpha=5.0), 3, 5.0, 1),
    ],
)
def test_an_adapter_is_as_its_settings_say(lora, rank, scale, trained):
    adapted = with_adapter(tiny_llama(64), lora)
    config = adapted.peft_config["default"]
    assert (config.r, config.lora_alpha, config.lora_dropout) == (rank, scale, 0.0)
    assert config.task_type == "CAUSAL_LM"
    layers = tiny_llama(64).config.num_hidden_layers
    names = [name for name, each in adapted.named_parameters() if each.requires_grad]
    assert len(names) == (trained if lora.layers == "head" else trained * layers)
    if lora.layers == "head":
        assert config.target_modules == {"lm_head"}
        assert not adapted.get_base_model().lm_head.lora_A["default"].weight.any()


def test_a_new_adapter_leaves_the_value_head_of_a_folder_as_it_was(tmp_path, tokenizer):
    model = AutoModelForCausalLMWithValueHead(tiny_llama(len(tokenizer)))
    torch.nn.init.constant_(model.v_head.out.bias, 0.25)  # a critic that has learned to predict 1/4
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded = load_model_and_tokenizer(str(tmp_path), "cpu", full_finetuning=False)
    assert loaded.model.is_adapted
    assert loaded.model(torch.tensor([[1, 2]])).values[0].tolist() == pytest.approx([0.25, 0.25])
    assert (
        AutoModelForCausalLMWithValueHead.from_pretrained(
            tmp_path, peft_config=LoraConfig(layers="all")
        ).v_head.out.bias.item()
        == 0.25
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"full_finetuning": True}, "has an adapter, which is trained as it is"),
        ({"lora": LoraConfig(r=8)}, "has an adapter, which is trained as it is"),
    ],
)
def test_settings_that_mean_other_weights_than_a_saved_adapters_are_refused(
    given, said, tmp_path, tokenizer
):
    tiny_llama(len(tokenizer)).save_pretrained(tmp_path / "base")
    AutoModelForCausalLMWithValueHead.from_pretrained(
        tmp_path / "base", peft_config=LoraConfig(r=2)
    ).save_pretrained(tmp_path / "adapter")
    tokenizer.save_pretrained(tmp_path / "adapter")
    with pytest.raises(ModelLoadError, match=said):
        load_model_and_tokenizer(str(tmp_path / "adapter"), "cpu", **given)


def test_a_path_without_a_model_gets_a_sentence(tmp_path):
    with pytest.raises(ModelLoadError, match=r"config\.json and safetensors"):
        load_model_and_tokenizer(str(tmp_path), "cpu")
    with pytest.raises(ModelLoadError, match=r"No model in '\./nowhere'"):
        load_model_and_tokenizer("./nowhere", "cpu")


def test_a_hub_model_without_a_network_is_refused_within_seconds(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    began = time.perf_counter()
    with pytest.raises(ModelLoadError, match="hub cannot be reached"):
        load_model_and_tokenizer("someone/absent-model", "cpu")
    assert time.perf_counter() - began < 60


def test_a_device_that_is_not_there_gets_a_sentence():
    if torch.cuda.is_available():
        pytest.skip("this machine has one")
    with pytest.raises(ModelLoadError, match="Device 'cuda' is not there"):
        load_model_and_tokenizer("bundled", "cuda")


@pytest.mark.parametrize(
    ("entry", "dtype", "full", "parameters", "held", "is_full"),
    [
        ({}, None, None, LARGEST_FULLY_TRAINED, torch.float32, True),
        ({}, None, None, LARGEST_FULLY_TRAINED + 1, torch.float32, False),
        ({}, "bfloat16", None, 1, torch.bfloat16, False),
        ({}, None, True, 10**12, torch.float32, True),
        ({}, "float32", False, 1, torch.float32, False),
        ({"full_finetuning": True}, None, None, 10**12, torch.float32, True),
        ({"dtype": "bfloat16"}, None, None, 1, torch.bfloat16, False),
        ({"dtype": "bfloat16"}, None, True, 1, torch.float32, True),
        ({"dtype": "bfloat16"}, "float32", None, 1, torch.float32, True),
    ],
)
def test_the_type_of_weights_and_whether_all_are_trained_follow_from_what_is_given(
    entry, dtype, full, parameters, held, is_full
):
    known = ModelEntry("x", short="x", **entry)
    assert weights_type(known, dtype, full) == held
    assert is_fully_trained(known, full, held, parameters) is is_full
