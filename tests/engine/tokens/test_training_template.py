"""Models whose templates take thoughts out of earlier turns: TRL's templates for training keep them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import trl
from transformers import (
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from llamagym_tui.config import GenerationConfig, PPOConfig
from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.model.loading import bind_template_arguments
from llamagym_tui.engine.model.value_head import AutoModelForCausalLMWithValueHead
from llamagym_tui.engine.policy.episode import Episode
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.sampler import Reply, Sampler
from llamagym_tui.engine.tokens import tokenization
from llamagym_tui.engine.tokens.tokenization import ChatTokenizer
from tests.engine.policy.test_turn_ends import CHATML, Family

TEMPLATES = Path(trl.__file__).parent / "chat_templates"
QWEN3 = Family(*CHATML, "", "<|im_start|> <|im_end|>", "<think> </think>", "<|im_end|>")
R1 = Family(
    "<｜User｜>%", "<｜Assistant｜>", "<｜end▁of▁sentence｜>", "",
    "<｜end▁of▁sentence｜>", "<｜User｜> <｜Assistant｜> <think> </think>", "<｜end▁of▁sentence｜>",
)  # fmt: skip
SHAPE: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 64,
    "head_dim": 8,
    "initializer_range": 0.2,
    "tie_word_embeddings": True,
}


def qwen3(vocabulary: int) -> PreTrainedModel:
    return Qwen3ForCausalLM(Qwen3Config(vocab_size=vocabulary, **SHAPE))


def qwen2(vocabulary: int) -> PreTrainedModel:
    """As the smaller distillates of DeepSeek-R1 are."""
    return Qwen2ForCausalLM(Qwen2Config(vocab_size=vocabulary, **SHAPE))


FAMILIES = {"qwen3": (QWEN3, qwen3), "deepseek_r1_distill": (R1, qwen2)}


@pytest.fixture(autouse=True)
def no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """The templates are TRL's: a process of its own for each would take seconds."""
    monkeypatch.setattr(tokenization, "template_fault", lambda tokenizer: None)


def tokenizer_of(name: str, changed: Callable[[str], str] = str) -> Any:
    tokenizer = FAMILIES[name][0].tokenizer()
    tokenizer.chat_template = changed((TEMPLATES / f"{name}.jinja").read_text("utf-8"))
    return tokenizer


def policy_of(name: str) -> Policy:
    """A policy with random weights."""
    tokenizer = tokenizer_of(name)
    torch.manual_seed(0)
    model = AutoModelForCausalLMWithValueHead(FAMILIES[name][1](len(tokenizer)))
    torch.nn.init.normal_(model.v_head.out.weight)
    return Policy(model, tokenizer, GenerationConfig(max_new_tokens=12), ("act up", "act down"))


@pytest.mark.parametrize("name", FAMILIES)
def test_thoughts_of_earlier_turns_stay_and_an_episode_is_one_row(name: str) -> None:
    policy = policy_of(name)
    assert policy.chat.keeps_history
    assert policy.chat.training_template == f"{name}_training"
    episodes = [Episode(policy, "Play") for _ in range(8)]
    sampler = Sampler(policy, len(episodes))
    for text in ("room a", "room b"):
        prompts = [episode.observe(text) for episode in episodes]
        for slot, prompt in enumerate(prompts):
            if prompt.restart is not None:
                sampler.restart(slot, prompt.restart)
        replies = sampler.reply(range(len(episodes)), [prompt.ids for prompt in prompts])
        for episode, reply in zip(episodes, replies, strict=True):
            episode.reply(reply)
            episode.reward(float(len(reply.ids) % 2))
    assert [len(episode.segments) for episode in episodes] == [1] * 8
    settings = PPOConfig(critic_warmup_updates=0, batch_size=16)
    stats = PPO(policy, settings).update([episode.finish("terminated") for episode in episodes])
    assert stats.first_ratio < 1e-4


@pytest.mark.parametrize("name", FAMILIES)
def test_what_was_sampled_is_what_the_template_for_training_writes(name: str) -> None:
    policy = policy_of(name)
    chat = policy.chat
    opened = "" if name == "qwen3" else "<think>\n"
    said = ["<think>\nwhy\n</think>\n\nact up", "<think>\nelse\n</think>\n\nact down"]
    episode = Episode(policy, "Play")
    for text, reply in zip(("a", "b"), said, strict=True):
        episode.observe(text)
        ids = [*chat.tokenizer(reply.removeprefix(opened))["input_ids"], chat.end_ids[0]]
        episode.reply(Reply(ids=ids, logprobs=[0.0] * len(ids), ended=True))
    whole = [*episode.segments[0].prefix, *episode.segments[0].ids]
    messages = [{"role": "system", "content": "Play"}]
    for text, reply in zip(("a", "b"), said, strict=True):
        messages += [{"role": "user", "content": text}, {"role": "assistant", "content": reply}]
    rendered = chat.tokenizer.apply_chat_template(messages, tokenize=False)
    assert chat.tokenizer.decode(whole) == rendered.rstrip("\n")


def test_where_thinking_is_off_the_empty_thought_stays_too() -> None:
    tokenizer = tokenizer_of("qwen3")
    bind_template_arguments(tokenizer, {"enable_thinking": False})
    chat = ChatTokenizer(tokenizer)
    assert chat.training_template == "qwen3_training"
    opening = chat.opening("", "a")
    prompt = tokenizer.decode([*opening.prefix, *opening.rest])
    assert prompt.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    later = tokenizer.decode(chat.continuation("b", ended=True))
    assert (
        later == "\n<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )


@pytest.mark.parametrize("name", FAMILIES)
def test_a_template_that_trl_does_not_know_has_one_row_a_turn(name: str) -> None:
    own = tokenizer_of(name, lambda text: text + "{# ours #}")
    chat = ChatTokenizer(own)
    assert not chat.keeps_history
    assert chat.training_template == ""
    assert own.chat_template.endswith("{# ours #}")
