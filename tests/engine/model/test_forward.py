"""A shared prefix gives what unshared rows give, gradients included; any architecture takes explicit masks."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from llamagym_tui.engine.model.forward import Backbone
from tests.engine.conftest import tiny_llama

PREFIX, ROWS = [5, 9, 3, 7, 2], [[4, 8, 1], [6, 6, 2, 9, 3], [1, 2]]
AT_ROWS, AT_COLUMNS = torch.tensor([0, 1, 2]), torch.tensor([2, 4, 1])


def gradients(share: bool) -> tuple[torch.Tensor, list[torch.Tensor]]:
    lm = tiny_llama(64)
    if share:
        logits = Backbone(lm).encode_rows(PREFIX, ROWS).logits_at(AT_ROWS, AT_COLUMNS)
    else:
        logits = torch.stack([lm(torch.tensor([PREFIX + row])).logits[0, -1] for row in ROWS])
    logits.log_softmax(-1)[:, 3].sum().backward()
    return logits.detach(), [p.grad for p in lm.parameters() if p.grad is not None]


def test_shared_prefix_equals_unshared_rows_in_value_and_gradient():
    (shared, shared_gradients), (plain, plain_gradients) = gradients(True), gradients(False)
    assert relative_error(shared, plain) < 1e-5
    assert len(shared_gradients) == len(plain_gradients)
    for one, other in zip(shared_gradients, plain_gradients, strict=True):
        assert relative_error(one, other) < 1e-5


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 64,
}
ARCHITECTURES = {
    "gpt2": {
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 4,
        "vocab_size": 64,
        "bos_token_id": 1,
        "eos_token_id": 1,
    },
    "gpt_neox": SMALL,
    "phi": SMALL,
    "phi3": {**SMALL, "pad_token_id": 0},
    "mistral": {**SMALL, "num_key_value_heads": 2},
    "qwen2": {**SMALL, "num_key_value_heads": 2},
    "qwen3": {**SMALL, "num_key_value_heads": 2, "head_dim": 8},
    "gemma2": {**SMALL, "num_key_value_heads": 2, "head_dim": 8, "sliding_window": 32},
    "gemma3_text": {**SMALL, "num_key_value_heads": 2, "head_dim": 8, "sliding_window": 32},
    "smollm3": {**SMALL, "num_key_value_heads": 2, "pad_token_id": 0},
}


WINDOW = {"sliding_window": 3, "use_sliding_window": True, "max_window_layers": 1}
WITH_WINDOW = ["mistral", "phi3", "gemma2", "gemma3_text", "qwen2"]


@pytest.mark.parametrize(
    ("kind", "window"),
    [(kind, {}) for kind in ARCHITECTURES] + [(kind, WINDOW) for kind in WITH_WINDOW],
)
def test_every_architecture_gives_its_own_logits_through_a_shared_prefix(kind, window):
    torch.manual_seed(0)
    settings = ARCHITECTURES[kind] | window
    lm = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **settings)).eval()
    with torch.no_grad():
        own = torch.stack([lm(torch.tensor([PREFIX + row])).logits[0, -1] for row in ROWS])
        found = Backbone(lm).encode_rows(PREFIX, ROWS).logits_at(AT_ROWS, AT_COLUMNS)
    assert torch.allclose(found, own.float(), rtol=1e-3, atol=1e-4)
