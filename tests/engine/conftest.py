"""Small real models: random weights, the bundled tokenizer, one thread."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from llamagym_tui import Agent
from llamagym_tui.engine.llamagym_loop import LlamaGymLoop
from llamagym_tui.engine.model import lean
from llamagym_tui.engine.model.sources import bundled_model_path
from llamagym_tui.engine.model.value_head import AutoModelForCausalLMWithValueHead, with_adapter
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.settings import GenerationConfig, LoraConfig

REPLIES = ['{"action": 0}', '{"action": 1}']

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tokenizer():
    return AutoTokenizer.from_pretrained(bundled_model_path(), local_files_only=True)


def tiny_llama(vocabulary: int) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=64,
        initializer_range=0.2,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config).eval()


@cache
def prepared(
    vocabulary: int, lora: bool, family: frozenset[str]
) -> tuple[AutoModelForCausalLMWithValueHead, torch.Tensor]:
    """A model whose paths have been compared, and torch's random state after that; a copy takes a tenth of the time.

    `family` is what `lean.FAMILY` is: the comparison depends on it.
    """
    lm = tiny_llama(vocabulary)
    if lora:
        lm = with_adapter(lm, LoraConfig(layers="all", r=4, alpha=8.0))
    model = AutoModelForCausalLMWithValueHead(lm).eval()
    torch.nn.init.normal_(model.v_head.out.weight)
    assert model.backbone.is_lean == bool(family)
    return model, torch.get_rng_state()


@pytest.fixture(scope="session")
def make_policy(tokenizer) -> Callable[..., Policy]:
    """A policy with random weights; `lora=True` for an adapter with something in it."""

    def make(
        *, lora: bool = False, seed: int = 0, replies: Sequence[str] = REPLIES, **generation: Any
    ) -> Policy:
        model, random_state = prepared(len(tokenizer), lora, lean.FAMILY)
        torch.set_rng_state(random_state)
        settings = GenerationConfig(**{"max_new_tokens": 6} | generation)
        return Policy(copy.deepcopy(model), tokenizer, settings, replies, seed)

    return make


def loop_of(agent: Agent) -> LlamaGymLoop:
    """The loop behind an agent with a model: its batch, slots and learner."""
    assert agent._loop is not None
    return agent._loop


@pytest.fixture(params=["lean", "general"])
def either_path(request, monkeypatch) -> None:
    """Models of the Llama family take the lean path in one run of a test, and that of any model in another."""
    if request.param == "general":
        monkeypatch.setattr(lean, "FAMILY", frozenset())


@pytest.fixture
def bundled() -> Path:
    return bundled_model_path()
