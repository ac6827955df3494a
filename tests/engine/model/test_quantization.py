"""Weights of 8 and 4 bits play, learn and load again; skipped where bitsandbytes is not installed."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from llamagym_tui.config import GenerationConfig, PPOConfig
from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.model.loading import load_model_and_tokenizer
from llamagym_tui.engine.policy.policy import Policy
from tests.engine.conftest import REPLIES
from tests.engine.learning.test_ppo import collect

pytest.importorskip("bitsandbytes")

SIZES = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
"""Multiples of 64, the block of 4-bit weights."""


BITS = pytest.mark.parametrize("kind", ["8bit", "4bit"])


@pytest.fixture
def base(tmp_path, tokenizer) -> str:
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=len(tokenizer), initializer_range=0.1, **SIZES)
    LlamaForCausalLM(config).save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    return str(tmp_path / "base")


@BITS
def test_a_quantised_model_plays_learns_and_loads_again(kind, base, tmp_path, tokenizer):
    loaded = load_model_and_tokenizer(base, "cpu", quantization=kind)
    attention = loaded.model.causal_lm.model.layers[0].self_attn
    assert attention.q_proj.base_layer.weight.dtype in (torch.int8, torch.uint8)
    policy = Policy(loaded.model, loaded.tokenizer, GenerationConfig(max_new_tokens=6), REPLIES)
    stats = PPO(policy, PPOConfig(epochs=1, critic_warmup_updates=0)).update(collect(policy, 16))
    assert stats.first_ratio < 0.05
    assert abs(stats.kl_ref) < 0.01
    loaded.model.save_pretrained(tmp_path / "trained")
    tokenizer.save_pretrained(tmp_path / "trained")
    again = load_model_and_tokenizer(str(tmp_path / "trained"), "cpu", quantization=kind)
    assert again.model.is_adapted
    ids = torch.tensor([[1, 2, 3, 4]])
    with torch.no_grad():
        assert torch.allclose(loaded.model(ids).logits, again.model.eval()(ids).logits, atol=1e-4)


@BITS
def test_the_gradient_reaches_the_first_layer_and_is_the_same_after_a_rollout(kind, base):
    model = load_model_and_tokenizer(base, "cpu", quantization=kind).model.eval()
    first = model.causal_lm.model.layers[0].self_attn.q_proj.lora_B["default"].weight

    def gradient() -> torch.Tensor:
        logits = model.backbone.encode_rows((), [[1, 2, 3, 4]]).logits_at(torch.tensor([0]), torch.tensor([3]))
        return torch.autograd.grad(logits.log_softmax(-1)[0, 5], first)[0]

    before = gradient()
    with torch.no_grad():
        model(torch.tensor([[1, 2, 3]]))
    assert before.norm() > 0
    assert torch.allclose(gradient(), before, rtol=1e-4, atol=1e-6)
