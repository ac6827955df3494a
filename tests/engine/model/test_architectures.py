"""Architectures of transformers: whatever their cache is, what is sampled is what a plain forward gives.

The first family is computed as flat trees, all others as rows.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, BertConfig, BertLMHeadModel

from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.model.forward import Backbone
from llamagym_tui.engine.model.loading import load_model_and_tokenizer
from llamagym_tui.engine.model.value_head import AutoModelForCausalLMWithValueHead
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.sampler import Sampler
from llamagym_tui.errors import ModelLoadError
from llamagym_tui.settings import GenerationConfig, LoraConfig, PPOConfig
from tests.engine.conftest import REPLIES, tiny_llama
from tests.engine.learning.test_ppo import collect

SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
BERT = dict(SMALL)
SMALL |= {"num_key_value_heads": 2, "initializer_range": 0.2, "pad_token_id": 0}
MIXER = {
    "mamba_n_heads": 8,
    "mamba_d_head": 8,
    "mamba_d_state": 8,
    "mamba_n_groups": 1,
    "mamba_chunk_size": 16,
}
EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2}
LINEAR = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
SHARED: dict[str, dict[str, Any]] = {
    "llama": SMALL,
    "mistral": {**SMALL, "sliding_window": 7},
    "mixtral": SMALL | EXPERTS,
}
PLAIN: dict[str, dict[str, Any]] = {
    "gpt_neo": {
        "hidden_size": 32,
        "num_layers": 2,
        "num_heads": 4,
        "attention_types": [[["global", "local"], 1]],
    }
    | {"window_size": 7, "initializer_range": 0.2},
    "mamba": {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 8, "initializer_range": 0.2},
    "mamba2": {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_heads": 8,
        "head_dim": 8,
        "state_size": 8,
        "n_groups": 1,
    }
    | {"chunk_size": 16},
    "rwkv": {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "attention_hidden_size": 32,
        "context_length": 256,
    },
    "lfm2": {**SMALL, "layer_types": ["conv", "full_attention"]},
    "qwen3_next": {**SMALL, **EXPERTS, **LINEAR, "head_dim": 8, "moe_intermediate_size": 16}
    | {
        "shared_expert_intermediate_size": 16,
        "layer_types": ["linear_attention", "full_attention"],
    },
    "jamba": {
        **SMALL,
        **EXPERTS,
        "mamba_d_state": 8,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
    },
    "bamba": {**SMALL, **MIXER, "attn_layer_indices": [1]},
    "granitemoehybrid": {**SMALL, **MIXER, **EXPERTS, "layer_types": ["mamba", "attention"]},
    "recurrent_gemma": {**SMALL, "num_hidden_layers": 3, "num_key_value_heads": 1, "lru_width": 32}
    | {"block_types": ["recurrent", "recurrent", "attention"], "attention_window_size": 8},
    "minimax": {
        **SMALL,
        **EXPERTS,
        "head_dim": 8,
        "layer_types": ["full_attention", "linear_attention"],
    },
    "falcon_h1": {**SMALL, **MIXER, "mamba_d_ssm": 64},
    "zamba": {
        **SMALL,
        "num_hidden_layers": 4,
        "layers_block_type": ["linear_attention", "hybrid"] * 2,
    }
    | {
        "n_mamba_heads": 2,
        "attention_hidden_size": 64,
        "attention_head_dim": 16,
        "mamba_dt_rank": 4,
        "mamba_d_state": 8,
    },
    "bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 4, "initializer_range": 0.2},
    "falcon": {**SMALL, "alibi": True, "num_kv_heads": 4},
    "mpt": {"d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 256},
}
QUICK = ("llama", "gpt_neo", "mamba")
EVERY = [
    pytest.param(kind, settings, id=kind, marks=[] if kind in QUICK else [pytest.mark.slow])
    for kind, settings in (SHARED | PLAIN).items()
]


def tiny(kind: str, settings: dict[str, Any]) -> Any:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **settings)).eval()


def played(policy: Policy) -> list[tuple[float, float, float, float]]:
    """Log-probability and value of all sampled tokens: as sampled, and by a plain forward of transformers."""
    found = []
    prompts = [policy.chat.opening("Play a game.", text) for text in ("a", "a longer one: 15.")]
    for prompt, reply in zip(prompts * 2, Sampler(policy).reply(prompts * 2), strict=True):
        row = [*prompt.prefix, *prompt.rest, *reply.ids]
        start = len(row) - len(reply.ids)
        with torch.no_grad():
            output = policy.model(torch.tensor([row]), use_cache=False)
        logprobs = output.logits[0].float().log_softmax(-1)
        value = float(output.values[0, start - 1])
        for at, (token, logprob) in enumerate(zip(reply.ids, reply.logprobs, strict=True), start):
            found.append((logprob, float(logprobs[at - 1, token]), reply.value, value))
    return found


@pytest.mark.parametrize(("kind", "settings"), EVERY)
def test_what_is_sampled_is_what_a_plain_forward_gives_and_the_first_ratio_is_one(
    kind, settings, tokenizer
):
    model = AutoModelForCausalLMWithValueHead(tiny(kind, settings | {"vocab_size": len(tokenizer)}))
    torch.nn.init.normal_(model.v_head.out.weight)
    policy = Policy(model, tokenizer, GenerationConfig(max_new_tokens=6), REPLIES)
    for logprob, plain_logprob, value, plain_value in played(policy):
        assert logprob == pytest.approx(plain_logprob, abs=1e-4)
        assert value == pytest.approx(plain_value, abs=1e-4)
    ppo = PPO(policy, PPOConfig(epochs=1, mini_batch_size=8, critic_warmup_updates=0, kl_coef=0.1))
    stats = ppo.update(collect(policy, episodes=8))
    assert stats.first_ratio < 1e-4
    assert stats.grad_norm > 0


def saved(lm: Any, tokenizer: Any, folder: Any) -> str:
    lm.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def test_what_reads_from_both_sides_is_refused_in_one_sentence(tmp_path, tokenizer):
    config = BertConfig(vocab_size=len(tokenizer), is_decoder=False, initializer_range=0.2, **BERT)
    folder = saved(BertLMHeadModel(config), tokenizer, tmp_path)
    with pytest.raises(
        ModelLoadError,
        match=r"does not load: ValueError: what it predicts depends on tokens to come",
    ):
        load_model_and_tokenizer(folder, "cpu")


def test_broken_weights_are_refused_in_one_sentence(tmp_path, tokenizer):
    lm = tiny_llama(len(tokenizer))
    torch.nn.init.constant_(lm.model.norm.weight, float("nan"))
    with pytest.raises(
        ModelLoadError, match=r"does not load: ValueError: its predictions are not finite numbers"
    ):
        load_model_and_tokenizer(saved(lm, tokenizer, tmp_path), "cpu")


def test_what_a_model_calls_its_decoder_and_is_another_part_of_it_is_not_called(monkeypatch):
    lm = tiny_llama(64)
    ids = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        own = lm(ids).logits[0]
    monkeypatch.setattr(lm, "get_decoder", lambda: lm.model.layers[0])
    backbone = Backbone(lm)
    with torch.no_grad():
        found = backbone.encode_rows(ids.tolist()).logits_at(torch.zeros(3).long(), ids[0] - 1)
    torch.testing.assert_close(found, own)


def test_a_model_without_a_hidden_state_of_each_token_is_refused_in_one_sentence(monkeypatch):
    lm = tiny_llama(64)
    forward = lm.model.forward

    def every_other(**arguments):
        output = forward(**arguments)
        output.last_hidden_state = output.last_hidden_state[:, ::2]
        return output

    monkeypatch.setattr(lm.model, "forward", every_other)
    with pytest.raises(ValueError, match="it has no hidden state of each token that a value head"):
        Backbone(lm)


def test_an_adapter_that_a_model_cannot_have_gets_a_sentence(tmp_path, tokenizer):
    lm = tiny("mamba", PLAIN["mamba"] | {"vocab_size": len(tokenizer)})
    lora = LoraConfig(layers="all", r=2, target_modules="out_proj")
    with pytest.raises(ModelLoadError, match="does not load: "):
        load_model_and_tokenizer(
            saved(lm, tokenizer, tmp_path), "cpu", full_finetuning=False, lora=lora
        )
