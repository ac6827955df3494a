"""Reading in bfloat16 rounds what differs between prompts, and not what they have in common."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from llamagym_tui.engine.model import rounded
from llamagym_tui.engine.model.lean import read_states
from llamagym_tui.engine.model.rounded import Rounded, _Centres, _Product, _Tokens
from llamagym_tui.engine.tokens.flat_tree import FlatTree, flat_tree
from llamagym_tui.engine.tokens.token_tree import TokenTree


def _tree(*paths: list[int]) -> FlatTree:
    tree = TokenTree()
    last = [tree.insert(path)[-1] for path in paths]
    return flat_tree(tree, sorted(set(last)), torch.device("cpu"))


@pytest.fixture
def trunk() -> nn.Module:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=16,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        attention_bias=True,
    )
    return LlamaForCausalLM(config).eval().get_decoder()


def test_a_tree_knows_the_token_before_each() -> None:
    # 3 4 5 and 3 6, in preorder.
    assert _tree([3, 4, 5], [3, 6]).before.tolist() == [-1, 3, 4, 3]


@torch.no_grad()
def test_a_product_keeps_differences_that_bfloat16_would_round_away() -> None:
    linear = nn.Linear(2, 1)
    linear.weight.copy_(torch.tensor([[1.0, 2.0]]))
    linear.bias.fill_(0.5)
    tokens = _Tokens()
    tokens.rows = torch.tensor([0, 0, 1])
    tokens.count = 2
    tokens.are_new = True
    product = _Product(linear, _Centres(tokens, 2))
    inputs = torch.tensor([[1000.0, 1.0], [1000.0, 3.0], [7.0, 7.0]])

    # In float32 at first. The mean of the first two is (1000, 2), whose product is 1004.5.
    assert product(inputs).tolist() == [[1002.5], [1006.5], [21.5]]
    tokens.are_new = False
    # 1004.5 - 2, 1004.5 + 2 and 21.5 + 0; bfloat16 has no number between 1000 and 1004.
    assert product(inputs.clone()).tolist() == [[1002.5], [1006.5], [21.5]]
    assert torch.tensor(1002.5).bfloat16().item() in (1000.0, 1004.0)


@torch.no_grad()
def test_new_pairs_are_read_in_float32_and_known_ones_nearly_as_exactly(trunk: nn.Module) -> None:
    reading = Rounded(trunk)
    first = _tree(*([1, token, 3, 4] for token in range(5, 13)))
    exact = read_states(trunk, first)
    assert torch.allclose(reading.read(first), exact, atol=1e-6)

    # 4 after 3 stands behind eight beginnings, so that its states differ from their centre.
    error = (reading.read(first) - exact).abs().mean()
    coarse = (read_states(copy.deepcopy(trunk).bfloat16(), first) - exact).abs().mean()
    assert 0 < error < coarse / 2

    # 4 after 4 was never met.
    other = _tree([1, 5, 3, 4, 4])
    assert torch.allclose(reading.read(other), read_states(trunk, other), atol=1e-6)


@torch.no_grad()
def test_a_token_that_begins_to_be_read_counts_as_new(trunk: nn.Module) -> None:
    reading = Rounded(trunk)
    reading.read(_tree([1, 2, 3]))
    shorter = _tree([1, 2])
    assert torch.allclose(reading.read(shorter), read_states(trunk, shorter), atol=1e-6)


@torch.no_grad()
def test_without_room_for_centres_all_is_read_in_float32(
    trunk: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounded, "MOST_BYTES", 10)
    reading = Rounded(trunk)
    tree = _tree([1, 2, 3])
    for _ in range(2):
        assert torch.equal(reading.read(tree), read_states(trunk, tree))
