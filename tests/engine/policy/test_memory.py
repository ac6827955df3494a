"""Prompts and the admissible replies behind them are read together as if each were read alone."""

from __future__ import annotations

import pytest
import torch

from llamagym_tui.engine.model.forward import Backbone
from llamagym_tui.engine.model.value_head import AutoModelForCausalLMWithValueHead
from llamagym_tui.engine.policy.policy import Policy, PromptMemory, states_of
from llamagym_tui.engine.policy.sampler import Sampler
from llamagym_tui.engine.tokens.tokenization import Opening
from llamagym_tui.settings import GenerationConfig, LoraConfig
from tests.engine.conftest import REPLIES, tiny_llama

PROMPTS = [
    Opening((1, 2), (5, 6, 7)),
    Opening((1, 3), (5, 6, 7)),
    Opening((1, 2), (5, 8, 7, 9)),
    Opening((1, 2), (5, 6)),  # another prompt begins with all of it
    Opening((1, 2), (5, 6, 4)),
]


def narrow_policy(tokenizer) -> Policy:
    model = AutoModelForCausalLMWithValueHead(tiny_llama(len(tokenizer)))
    model.adapt(LoraConfig(layers="head", r=8))
    return Policy(model, tokenizer, GenerationConfig(policy="score", max_new_tokens=6), REPLIES)


def test_prompts_that_are_read_together_have_the_states_of_each_alone(tokenizer) -> None:
    policy = narrow_policy(tokenizer)
    together = states_of(policy, PROMPTS, policy.trie).hidden
    assert together.shape[:2] == (len(PROMPTS), 1 + len(policy.trie.tree))
    for prompt, found in zip(PROMPTS, together, strict=True):
        for reply, path in zip(policy.trie.replies, policy.trie.paths, strict=True):
            ids = torch.tensor([[*prompt.prefix, *prompt.rest, *reply[:-1]]])
            plain = policy.model.backbone.decoder(input_ids=ids).last_hidden_state[0]
            columns = [0, *(1 + node for node in path)]
            first = len(prompt.prefix) + len(prompt.rest) - 1
            assert torch.allclose(found[columns], plain[first:], atol=1e-5)


def test_what_prompts_have_in_common_is_read_once(tokenizer, monkeypatch) -> None:
    policy = narrow_policy(tokenizer)
    read: list[int] = []
    plain = Backbone.encode_tree

    def encode_tree(backbone, tree, columns):
        read.append(len(tree))
        return plain(backbone, tree, columns)

    monkeypatch.setattr(Backbone, "encode_tree", encode_tree)
    states_of(policy, PROMPTS, policy.trie)
    replies = len(policy.trie.tree)
    # 1; behind it 2 with 5, 6, 7, 4, then 8, 7, 9; and 3 with three tokens.
    assert read == [1 + 8 + 4 + 5 * replies]
    states_of(policy, PROMPTS, policy.trie)
    assert len(read) == 1, "remembered"


def test_another_version_of_trained_weights_remembers_nothing(make_policy) -> None:
    policy = make_policy()
    sampler = Sampler(policy)
    prompt = policy.chat.opening("Play.", "x")
    sampler.reply([prompt, prompt])
    sampler.reply([prompt])
    assert sampler.memory.take_share() == pytest.approx(2 / 3)
    with torch.no_grad():
        policy.model.v_head.out.bias += 1
        policy.model.causal_lm.get_input_embeddings().weight += 1
    policy.version += 1
    before = float(sampler.reply([prompt])[0].value)
    assert sampler.memory.take_share() == 0
    assert before == pytest.approx(sampler.reply([prompt])[0].value)


def test_a_full_memory_is_emptied(tokenizer) -> None:
    policy = narrow_policy(tokenizer)
    memory = PromptMemory(1_200)
    for prompt in PROMPTS:
        states_of(policy, [prompt], policy.trie, memory)
    memory.take_share()
    states_of(policy, PROMPTS[:1], policy.trie, memory)
    assert memory.take_share() == 0
