"""Both forwards give what transformers gives, gradients included; what cannot be computed so is refused."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

from llamagym_tui.engine.model import forward, lean
from llamagym_tui.engine.model.forward import Backbone
from llamagym_tui.engine.tokens.token_tree import TokenTree
from tests.engine.conftest import tiny_llama
from tests.engine.model.test_architectures import SMALL, tiny

ROWS = [[5, 9, 3, 4, 8, 1], [5, 9, 3, 6, 6, 2, 9, 3], [5, 9, 3, 4, 2]]
LEAN: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"sliding_window": None},
    "qwen2": {},
    "qwen3": {"head_dim": 8},
}
GENERAL: dict[str, dict[str, Any]] = {
    "mistral": {"sliding_window": 3},
    "gemma2": {"head_dim": 8, "sliding_window": 32},
    "smollm3": {},
}


def of_rows(lm: Any) -> tuple[torch.Tensor, list[torch.Tensor]]:
    logits = torch.stack([lm(torch.tensor([row])).logits[0, -1] for row in ROWS])
    return with_gradients(lm, logits)


def of_tree(lm: Any, backbone: Backbone) -> tuple[torch.Tensor, list[torch.Tensor]]:
    tree = TokenTree()
    last = [tree.insert(row)[-1] for row in ROWS]
    encoded = backbone.encode_tree(tree, last)
    logits = encoded.logits_at(torch.zeros(3, dtype=torch.long), torch.tensor(last))
    return with_gradients(lm, logits)


def with_gradients(lm: Any, logits: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
    lm.zero_grad()
    logits.float().log_softmax(-1)[:, 3].sum().backward()
    return logits.detach(), [p.grad.clone() for p in lm.parameters() if p.grad is not None]


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize(
    ("kind", "settings", "is_lean"),
    [(kind, each, True) for kind, each in LEAN.items()]
    + [(kind, each, False) for kind, each in GENERAL.items()],
)
def test_a_tree_has_the_logits_and_gradients_of_its_rows(kind, settings, is_lean):
    lm = tiny(kind, {**SMALL, "vocab_size": 64} | settings)
    backbone = Backbone(lm)
    assert backbone.is_lean == is_lean
    expected, expected_gradients = of_rows(lm)
    found, found_gradients = of_tree(lm, backbone)
    assert torch.allclose(found, expected.float(), rtol=1e-3, atol=1e-4)
    assert len(found_gradients) == len(expected_gradients)
    for one, other in zip(found_gradients, expected_gradients, strict=True):
        assert relative_error(one, other) < 1e-4


def test_weights_of_sixteen_bits_are_computed_flat_too():
    lm = tiny_llama(64).bfloat16()
    backbone = Backbone(lm)
    assert backbone.is_lean
    assert relative_error(of_tree(lm, backbone)[0], of_rows(lm)[0].float()) < 0.05


def test_a_flat_forward_that_is_off_is_not_taken(monkeypatch, caplog):
    plain = lean.read_states
    monkeypatch.setattr(forward, "read_states", lambda decoder, flat: 1.5 * plain(decoder, flat))
    backbone = Backbone(tiny_llama(64))
    assert not backbone.is_lean
    assert caplog.records[0].levelno == logging.WARNING
