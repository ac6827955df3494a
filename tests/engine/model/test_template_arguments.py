"""Arguments of a chat template reach every rendering, and stay with the tokenizer that is saved."""

from __future__ import annotations

import pytest
from transformers import AutoTokenizer

from llamagym_tui.engine.model.loading import (
    bind_template_arguments,
    load_model_and_tokenizer,
)
from llamagym_tui.engine.model.sources import bundled_model_path
from llamagym_tui.engine.tokens.tokenization import ChatTokenizer
from llamagym_tui.errors import ModelLoadError
from llamagym_tui.model_registry import find
from tests.engine.conftest import tiny_llama

THINKING = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>"
    "{% if enable_thinking is defined and enable_thinking is false %}<think></think>{% endif %}{% endif %}"
)
"""As Qwen3's: a reply begins with an empty thought where thinking is off."""
HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture
def thinking():
    tokenizer = AutoTokenizer.from_pretrained(bundled_model_path(), local_files_only=True)
    tokenizer.chat_template = THINKING
    return tokenizer


def rendered(tokenizer, **arguments) -> str:
    return tokenizer.apply_chat_template(
        HELLO, tokenize=False, add_generation_prompt=True, **arguments
    )


def test_the_arguments_of_an_entry_are_in_every_rendering_of_a_conversation(thinking):
    bind_template_arguments(thinking, find("Qwen/Qwen3-0.6B").template_arguments)
    assert rendered(thinking).endswith("<|assistant|><think></think>")
    opening = ChatTokenizer(thinking).opening("Play.", "hello")
    assert "<think></think>" in thinking.decode([*opening.prefix, *opening.rest])


def test_who_renders_may_say_otherwise(thinking):
    bind_template_arguments(thinking, {"enable_thinking": False})
    assert rendered(thinking, enable_thinking=True).endswith("<|assistant|>")


def test_arguments_are_bound_once_and_saved_with_the_tokenizer(thinking, tmp_path):
    bind_template_arguments(thinking, {"enable_thinking": False})
    once = thinking.chat_template
    bind_template_arguments(thinking, {"enable_thinking": False})
    assert thinking.chat_template == once
    thinking.save_pretrained(tmp_path)
    assert rendered(AutoTokenizer.from_pretrained(tmp_path)).endswith("<think></think>")


def test_the_callers_template_arguments_are_bound_when_a_model_is_loaded(thinking, tmp_path):
    tiny_llama(len(thinking)).save_pretrained(tmp_path)
    thinking.save_pretrained(tmp_path)
    loaded = load_model_and_tokenizer(
        str(tmp_path), "cpu", template_arguments={"enable_thinking": False}
    )
    assert rendered(loaded.tokenizer).endswith("<|assistant|><think></think>")


def test_an_argument_that_the_template_does_not_know_is_refused_by_name():
    with pytest.raises(ModelLoadError, match="The chat template of model 'bundled' has no date_s"):
        load_model_and_tokenizer("bundled", "cpu", template_arguments={"date_string": "26 July"})
