"""What is found in templates of the families that matter, and what is not."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tokenizers.processors import TemplateProcessing
from transformers import GenerationConfig

from llamagym_tui.engine.tokens.template_faults import FAULTS, template_faults
from llamagym_tui.engine.tokens.tokenization import ChatTokenizer
from tests.engine.small_tokenizers import CHATML, llama_2_like, qwen_like

SOUND = CHATML.replace(
    "{{ m['content'] }}<|im_end|>",
    "{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] }}<|im_end|>{% endgeneration %}"
    "{% else %}{{ m['content'] }}<|im_end|>{% endif %}",
)
"""A template in which nothing is wrong."""
THOUGHTLESS = SOUND.replace(
    "{{ m['content'] }}",
    "{{ m['content'] if loop.last or m['role'] != 'assistant' else m['content'].split('</think>')[-1] }}",
)
"""As Qwen3's: it leaves thoughts out of earlier replies."""
REFUSING = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('none') }}{% endif %}" + SOUND
)
"""As Gemma's."""
SILENT = SOUND.replace("messages %}", "messages if m['role'] != 'system' %}")
"""It leaves a system message out."""
TOLD = "{% set told = messages[0]['content'] if messages[0]['role'] == 'system' else '' %}"
IN_FIRST = TOLD + SILENT.replace("{% else %}{{", "{% else %}{{ told if loop.first }}{{")
"""As Llama 2's and Gemma 3's."""
IN_LAST = TOLD + SILENT.replace("{% else %}{{", "{% else %}{{ told if loop.last }}{{")
"""As Mistral's."""
RETURNING = SOUND.replace(
    "<|im_end|>{% endgen", "{{ '<|endoftext|>' if loop.last else '<|im_end|>' }}{% endgen"
)
"""As gpt-oss's: the last reply ends with another token."""
OPEN = SOUND.replace("<|im_end|>", "")
"""It ends no turn."""
BOS = "<|endoftext|>"
UNASKED = "{% if add_generation_prompt %}"
"""Where a template begins to write the header of a reply that it is asked for."""


def sound() -> Any:
    """A tokenizer in which nothing is wrong."""
    tokenizer = qwen_like()
    tokenizer.chat_template = SOUND
    return tokenizer


def beginning(tokenizer: Any) -> Any:
    """The same, with a token before each text, as Llama 3's."""
    tokenizer.bos_token = BOS
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, tokenizer.bos_token_id)]
    )
    return tokenizer


def found(tokenizer: Any, *ends: str, observation: str = "You have 12.") -> dict[str, str]:
    """What is found where generation_config.json names these ends."""
    named = tokenizer.convert_tokens_to_ids(list(ends or ["<|im_end|>"]))
    chat = ChatTokenizer(tokenizer, GenerationConfig(eos_token_id=named))
    opening = chat.opening("Play.", observation)
    return template_faults(chat, [*opening.prefix, *opening.rest, *chat.reply_ids('{"action": 0}')])


def test_nothing_is_found_where_nothing_is_wrong(tokenizer: Any) -> None:
    assert found(sound()) == {}
    assert found(tokenizer, "<|end|>") == {}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (THOUGHTLESS, {"history"}),
        (REFUSING, {"system refused"}),
        (SILENT, {"system refused"}),
        (IN_FIRST, {"system moved"}),
        (IN_LAST, {"system moved", "history"}),
        (SOUND.partition(UNASKED)[0], {"no prompt"}),
        (THOUGHTLESS.partition(UNASKED)[0], {"no prompt"}),
        (OPEN, {"no end"}),
        (RETURNING, set()),
        (CHATML, {"no markers"}),
        (None, {"no template"}),
    ],
    ids=[
        "thoughts",
        "refused",
        "left out",
        "first",
        "last",
        "no prompt",
        "no prompt, thoughts",
        "no end",
        "two ends",
        "no markers",
        "none",
    ],
)
def test_a_template_has_its_own_fault_and_no_other(
    template: str | None, expected: set[str]
) -> None:
    tokenizer = sound()
    tokenizer.chat_template = template
    assert set(found(tokenizer)) == expected


def test_what_a_template_without_a_prompt_lacks_is_written_out_and_mends_it() -> None:
    tokenizer = sound()
    tokenizer.chat_template = SOUND.partition(UNASKED)[0]
    lacking = UNASKED + r"{{ '<|im_start|>assistant\n' }}{% endif %}"
    assert f"Write {lacking} at the end of the template." in found(tokenizer)["no prompt"]
    tokenizer.chat_template += lacking
    assert found(tokenizer) == {}
    tokenizer.chat_template = THOUGHTLESS.partition(UNASKED)[0] + lacking
    assert set(found(tokenizer)) == {"history"}


def test_a_beginning_is_written_once_by_template_and_tokenizer_together() -> None:
    missing = found(beginning(sound()))
    assert set(missing) == {"no BOS"}
    assert missing["no BOS"].startswith(f"The tokenizer begins each text with {BOS}, and")
    written = sound()
    written.bos_token = BOS
    written.chat_template = "{{ bos_token }}" + SOUND
    assert found(written) == {}
    assert set(found(beginning(written))) == {"two BOS"}
    without = beginning(sound())
    without.chat_template = None
    assert set(found(without)) == {"no template"}


def test_an_end_that_model_or_tokenizer_do_not_know_is_named() -> None:
    other = sound()
    other.add_special_tokens({"eos_token": "<|end_of_text|>"})
    assert set(found(other)) == {"other EOS"}
    assert set(found(other, "<|end_of_text|>")) == {"other EOS", "end unknown"}
    assert found(sound(), "<|endoftext|>")["end unknown"].startswith(
        "The template ends a reply with <|im_end|>, and generation_config.json ends one with <|endoftext|>."
    )
    silent = template_faults(ChatTokenizer(sound()), [])
    assert "ends one with nothing." in silent["end unknown"]


def test_padding_with_an_end_is_found_and_without_any_is_not() -> None:
    padded = sound()
    padded.pad_token = "<|im_end|>"
    assert set(found(padded)) == {"padding"}
    padded.pad_token = None
    assert found(padded) == {}
    padded.eos_token = "<|endoftext|>"
    padded.pad_token = "<|im_end|>"
    assert set(found(padded)) == {"other EOS", "padding"}


def test_tokens_that_their_text_does_not_give_again_are_shown() -> None:
    # Neither has the letters P and Y; spelled out as <unk>, they are followed by a space of BPE's own.
    drifted = found(llama_2_like("bpe"), "</s>")["drift"]
    assert "has other tokens from ' [INST] <unk>l' on. Whoever" in drifted
    assert "drift" not in found(llama_2_like("unigram"), "</s>")


def test_llama_2s_manner_has_three_faults_in_words_of_its_own() -> None:
    faults = found(llama_2_like("unigram"), "</s>")
    assert set(faults) == {"system refused", "padding", "no markers"}
    assert faults["padding"].startswith("The token that pads, </s>, also ends a reply.")
    assert not any("$" in text for text in faults.values())


def test_every_fault_says_what_this_trainer_does() -> None:
    assert [name for name, text in FAULTS.items() if not re.search(r"\b[Hh]ere\b", text)] == []
