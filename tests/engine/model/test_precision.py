"""bf16 products: close to fp32, in value and gradient, and the same in sampling and in the update."""

from __future__ import annotations

import pytest
import torch
from msgspec.structs import replace as replaced

from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.model.forward import Backbone
from llamagym_tui.engine.model.precision import Products
from tests.engine.conftest import tiny_llama
from tests.engine.learning.test_ppo import QUICK, collect
from tests.engine.model.test_forward import AT_COLUMNS, AT_ROWS, PREFIX, ROWS


@pytest.fixture(autouse=True)
def narrow_weights_too(monkeypatch):
    monkeypatch.setattr("llamagym_tui.engine.model.precision.NARROWEST", 32)


def logits_and_gradients(precision: str) -> tuple[torch.Tensor, torch.Tensor]:
    lm = tiny_llama(64)
    logits = Backbone(lm, precision).encode_rows(PREFIX, ROWS).logits_at(AT_ROWS, AT_COLUMNS)
    logits.log_softmax(-1)[:, 3].sum().backward()
    return logits.detach(), torch.cat([p.grad.flatten() for p in lm.parameters()])


def test_products_are_rounded_to_eight_bits_and_gradients_follow():
    (exact, exact_gradient), (rounded, gradient) = (
        logits_and_gradients("fp32"),
        logits_and_gradients("bf16"),
    )
    assert rounded.dtype == gradient.dtype == torch.float32
    assert 1e-4 < float((rounded - exact).norm() / exact.norm()) < 0.03
    assert float(torch.nn.functional.cosine_similarity(gradient, exact_gradient, dim=0)) > 0.99


@pytest.mark.parametrize("trained", [True, False])
def test_a_product_and_its_gradients_are_those_of_rounded_factors(trained):
    torch.manual_seed(0)
    inputs, layer = torch.randn(2, 5, 32, requires_grad=True), torch.nn.Linear(32, 48)
    weight = layer.weight.requires_grad_(trained)
    with Products(layer, torch.zeros(1)).at("bf16"):
        ours = layer(inputs)
    theirs = torch.nn.functional.linear(inputs.bfloat16(), weight.bfloat16()).float() + layer.bias
    assert torch.equal(ours, theirs)
    assert torch.equal(
        layer(inputs), torch.nn.functional.linear(inputs, weight, layer.bias)
    )  # exact again
    leaves = [inputs, weight] if trained else [inputs]
    ours_of, theirs_of = (torch.autograd.grad(each.sin().sum(), leaves) for each in (ours, theirs))
    for one, other in zip(ours_of, theirs_of, strict=True):
        assert torch.allclose(one, other, rtol=0.02, atol=0.02)


def test_a_weight_is_rounded_once_and_again_when_it_has_changed(make_policy):
    weight, products = (
        torch.nn.Parameter(torch.full((32, 32), 0.5)),
        Products(torch.nn.Module(), torch.zeros(1)),
    )
    with torch.inference_mode():
        first = products.rounded(weight)
        assert products.rounded(weight) is first
    weight.grad = torch.ones_like(weight)
    torch.optim.AdamW([weight], lr=0.25, weight_decay=0.0).step()
    assert float(products.rounded(weight)[0, 0]) == 0.25
    now, weight.data = weight.data, torch.full((32, 32), 2.0)
    assert float(products.rounded(weight)[0, 0]) == 2.0
    weight.data = now
    assert float(products.rounded(weight)[0, 0]) == 0.25


def test_the_lean_paths_are_taken_in_bf16_too(make_policy):
    policy = make_policy()
    policy.model.precision = "bf16"
    assert policy.model.backbone.is_lean


def test_the_head_is_not_rounded():
    lm = tiny_llama(64)
    encoded = Backbone(lm, "bf16").encode_rows(PREFIX, ROWS)
    exact = lm.lm_head(encoded.hidden[AT_ROWS, AT_COLUMNS])
    assert torch.equal(encoded.logits_at(AT_ROWS, AT_COLUMNS), exact)


@pytest.mark.parametrize("lora", [False, True])
def test_sampling_and_update_round_alike(make_policy, lora):
    policy = make_policy(lora=lora)
    policy.model.precision = policy.model.backbone.precision = "bf16"
    ppo = PPO(policy, replaced(QUICK, lr=1e-4))
    stats = ppo.update(collect(policy))
    assert stats.first_ratio < 0.05
    assert abs(stats.kl_ref) < 0.01


def test_narrow_weights_are_not_rounded(monkeypatch):
    monkeypatch.setattr("llamagym_tui.engine.model.precision.NARROWEST", 65)
    (exact, _), (rounded, _) = logits_and_gradients("fp32"), logits_and_gradients("bf16")
    assert torch.equal(rounded, exact)
