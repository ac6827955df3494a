"""A head that moves few logits, from what is kept of places: its softmax and gradient are those of the plain model."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from llamagym_tui.engine.model.forward import Backbone, Encoded
from llamagym_tui.engine.model.narrow import NarrowEncoded, NarrowHead
from llamagym_tui.engine.model.value_head import AutoModelForCausalLMWithValueHead, with_adapter
from llamagym_tui.settings import LoraConfig
from tests.engine.conftest import tiny_llama

IDS = [3, 5, 9, 11]
TRAINED = [5, 9]


@pytest.fixture
def narrow() -> NarrowHead:
    """A head whose adapter has something in it."""
    adapted = with_adapter(tiny_llama(64), LoraConfig(layers="head", r=6))
    head = NarrowHead(adapted.get_base_model().get_output_embeddings())
    head.include(IDS, TRAINED)
    with torch.no_grad():
        head.down.normal_(std=0.5)
        head.up[TRAINED] = torch.randn(2, 6)
    return head


@pytest.fixture
def kept(narrow: NarrowHead) -> NarrowEncoded:
    return narrow.kept(Encoded(torch.nn.Identity(), torch.randn(2, 3, 32)))


ROWS = torch.tensor([0, 0, 1])
COLUMNS = torch.tensor([0, 2, 1])
PLACES = torch.tensor([0, 0, 1, 2, 2])
TOKENS = torch.tensor([3, 5, 9, 11, 5])


def plain_logprobs(narrow: NarrowHead, kept: NarrowEncoded) -> Tensor:
    """(3, V) by PEFT's own layer, with gradient to the whole of B."""
    head = narrow._base(kept.hidden[ROWS, COLUMNS])
    moved = kept.hidden[ROWS, COLUMNS] @ narrow.down.T @ narrow.up.T
    return (head + moved).log_softmax(-1)


def test_peft_has_the_same_logits(narrow: NarrowHead) -> None:
    adapted = with_adapter(tiny_llama(64), LoraConfig(layers="head", r=6))
    backbone = Backbone(adapted.get_base_model())
    own = NarrowHead(backbone.head)
    own.include(IDS, TRAINED)
    with torch.no_grad():
        own.down.normal_()
        own.up[TRAINED] = torch.randn(2, 6)
    ids = torch.tensor([[1, 2, 3]])
    encoded = backbone.encode_rows([[1, 2, 3]])
    score = own.kept(encoded).scorer_at(torch.zeros(3, dtype=torch.long), torch.arange(3), 1.0)
    tokens = torch.tensor(IDS)
    found, _ = score(torch.arange(3).repeat_interleave(len(IDS)), tokens.repeat(3))
    whole = adapted(input_ids=ids).logits[0].log_softmax(-1)
    assert torch.allclose(found, whole[:, tokens].flatten(), atol=1e-5)


def test_log_probabilities_are_those_of_the_whole_vocabulary(narrow, kept) -> None:
    logprobs, _ = kept.scorer_at(ROWS, COLUMNS, 1.0)(PLACES, TOKENS)
    whole = plain_logprobs(narrow, kept)
    assert torch.allclose(logprobs, whole[PLACES, TOKENS], atol=1e-5)


def test_the_gradient_of_the_rows_is_that_of_the_whole_matrix(narrow, kept) -> None:
    weights = torch.tensor([1.0, -2.0, 0.5, 3.0, 1.5])
    (plain,) = torch.autograd.grad(
        (weights * plain_logprobs(narrow, kept)[PLACES, TOKENS]).sum(), narrow.up
    )
    narrow.rows = narrow.up.detach()[IDS].clone().requires_grad_()
    logprobs, _ = kept.scorer_at(ROWS, COLUMNS, 1.0)(PLACES, TOKENS)
    (own,) = torch.autograd.grad((weights * logprobs).sum(), narrow.rows)
    trained = torch.isin(narrow.ids, torch.tensor(TRAINED))
    assert torch.allclose(
        own[trained], plain[TRAINED], rtol=1e-4, atol=1e-5 * float(plain.abs().max())
    )
    assert not own[~trained].any()


def test_an_adapter_that_was_trained_on_other_replies_keeps_what_it_has_learnt() -> None:
    adapted = with_adapter(tiny_llama(64), LoraConfig(layers="head", r=6))
    head = adapted.get_base_model().get_output_embeddings()
    with torch.no_grad():
        head.lora_A["default"].weight.normal_(std=0.5)
        head.lora_B["default"].weight[[7, 40]] = 1.0
    narrow = NarrowHead(head)
    narrow.include(IDS, TRAINED)
    hidden = torch.randn(4, 32)
    moved = (head(hidden) - head.base_layer(hidden))[:, narrow.ids]
    torch.testing.assert_close(narrow.added(hidden), moved, rtol=1e-4, atol=1e-5)
    assert narrow.trained == TRAINED


def test_a_merged_head_is_untied_from_the_embeddings_and_gives_the_same_logits(tmp_path) -> None:
    model = AutoModelForCausalLMWithValueHead(tiny_llama(64))
    model.adapt(LoraConfig(layers="head", r=6))
    head = model.causal_lm.get_output_embeddings()
    torch.nn.init.normal_(head.lora_A["default"].weight)
    torch.nn.init.normal_(head.lora_B["default"].weight)
    ids = torch.tensor([[4, 5, 6, 7]])
    with torch.no_grad():
        wanted = model.pretrained_model(input_ids=ids).logits
        plain = tiny_llama(64)(input_ids=ids).logits
        assert (wanted - plain).abs().max() > 0.1
        merged = model.merged()
        assert torch.allclose(merged(input_ids=ids).logits, wanted, atol=1e-5)
        merged.save_pretrained(tmp_path)
        again = LlamaForCausalLM.from_pretrained(tmp_path)
        assert torch.allclose(again(input_ids=ids).logits, wanted, atol=1e-5)


def test_an_adapter_that_magnifies_rounding_leaves_the_flat_forward_in_use() -> None:
    adapted = with_adapter(tiny_llama(64), LoraConfig(layers="head", r=6))
    head = NarrowHead(adapted.get_base_model().get_output_embeddings())
    with torch.no_grad():
        head.down.normal_(std=1e4)
        head.up.normal_()
    backbone = Backbone(adapted.get_base_model())
    assert backbone.is_lean
    assert backbone.head is adapted.get_base_model().get_output_embeddings()
