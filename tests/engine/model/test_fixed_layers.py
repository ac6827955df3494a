"""Layers that no step changes: what is remembered of them is what they would say, and is computed once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from llamagym_tui.config import LoraConfig
from llamagym_tui.engine.model import fixed_layers
from llamagym_tui.engine.model.fixed_layers import FixedLayers, count_fixed
from llamagym_tui.engine.model.shape import counted_shape
from llamagym_tui.engine.model.value_head import AutoModelForCausalLMWithValueHead, with_adapter
from llamagym_tui.engine.tokens.token_tree import TokenTree, TreeRows, tree_rows
from tests.engine.model.test_architectures import SMALL, tiny
from tests.engine.model.test_lean import VOCABULARY, computed, difference, model_of, rows

LAYERS = 6
BELOW = 4
"""The top quarter of six layers is two of them."""


def adapted(layers: Any, kind: str = "llama", **settings: Any) -> AutoModelForCausalLMWithValueHead:
    # Weights as of a real model: through six layers of larger ones rounding alone would come to 4e-5.
    usual = {"vocab_size": VOCABULARY, "num_hidden_layers": LAYERS, "initializer_range": 0.08}
    own = {**SMALL, **usual} | settings
    lm = tiny(kind, own)
    if layers is not None:
        lm = with_adapter(lm, LoraConfig(layers=layers, r=4))
        for weight in (weight for weight in lm.parameters() if weight.requires_grad):
            torch.nn.init.normal_(weight, std=0.02)
    return model_of(lm)


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_log_probabilities_values_and_gradients_are_those_of_the_plain_computation(kind):
    model = adapted("top", kind)
    assert model.backbone.flat_is_exact
    batch = rows(50)
    plain = computed(model, batch, is_lean=False)
    model.backbone.flat_is_exact = True
    model.backbone.remember_fixed_layers()
    assert model.backbone.fixed is not None
    # Of the first part nothing is remembered, of all some, and of all again everything, as in inference mode, too.
    with torch.inference_mode():
        for each in batch[:2]:
            model.backbone.encode_trees(each.segment.prefix, *_tree_of(each.segment.ids))
    for _ in range(2):
        assert difference(computed(model, batch, is_lean=True), plain) < 1e-5


def _tree_of(ids: list[int]) -> tuple[TreeRows, Tensor]:
    """A tree of one path, all of which is read."""
    trees = tree_rows([TokenTree.of(ids)], torch.device("cpu"))
    return trees, torch.ones_like(trees.ids, dtype=torch.bool)


def test_a_memory_that_is_full_lets_all_go_and_changes_no_result():
    model = adapted("top")
    batch = rows(50)
    plain = computed(model, batch, is_lean=False)
    tokens = len(
        {(*each.segment.prefix, *each.segment.ids[:n]) for each in batch for n in range(51)}
    )
    for room in (10, 60, tokens + 5):
        model.backbone.fixed = FixedLayers(BELOW, most=room * SMALL["hidden_size"] * 4)
        for some in (batch, batch[:1], batch[:3], batch):
            found = computed(model, some, is_lean=True)
            assert torch.allclose(found[0], plain[0][: len(found[0])], atol=1e-5)
        assert difference(found, plain) < 1e-5
        assert len(model.backbone.fixed._places) <= room


def test_each_token_is_computed_once_with_what_stands_before_it(monkeypatch):
    model = adapted("top")
    model.backbone.remember_fixed_layers()
    read: list[tuple[int, int]] = []
    plain = fixed_layers.states_before

    def states_before(decoder, count, paths):
        read.append((len(paths.ids), len(paths.wanted)))
        return plain(decoder, count, paths)

    monkeypatch.setattr(fixed_layers, "states_before", states_before)
    for ids in ([5, 6, 7], [5, 6, 8, 9], [5, 6, 8], [4]):
        model.backbone.encode_trees((1, 2), *_tree_of(ids))
    # All of the first; 8 and 9 behind 1, 2, 5 and 6; nothing; 4 behind 1 and 2.
    assert read == [(5, 5), (6, 2), (3, 1)]


@pytest.mark.parametrize(("layers", "count"), [("top", BELOW), ("all", 0), ("head", 0), (None, 0)])
def test_layers_below_all_that_is_trained_are_fixed(layers, count):
    model = adapted(layers, tie_word_embeddings=True)
    assert count_fixed(model.backbone.decoder) == count
    model.backbone.remember_fixed_layers()
    assert (model.backbone.fixed is not None) == (count > 0)


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_an_adapter_in_the_top_layers_is_in_the_top_quarter_alone_and_counted_so(kind):
    settings = {"n_layer": LAYERS} if kind == "gpt2" else {}
    model = adapted("top", kind, **settings)
    trained = {name: each for name, each in model.named_parameters() if "lora_" in name}
    assert trained
    numbers = {int(part) for name in trained for part in name.split(".") if part.isdigit()}
    assert numbers == {4, 5}
    shape = counted_shape(model.causal_lm.config)
    assert shape.adapter(LoraConfig(layers="top", r=4)) == sum(map(torch.numel, trained.values()))
