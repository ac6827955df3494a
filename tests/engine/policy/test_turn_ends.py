"""A reply ends where its turn does, by whatever token a family of models ends one."""

from __future__ import annotations

import string
from typing import Any, NamedTuple

import pytest
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from llamagym_tui.engine.model.value_head import AutoModelForCausalLMWithValueHead
from llamagym_tui.engine.policy.episode import Episode
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.sampler import Sampler
from llamagym_tui.engine.tokens.tokenization import ChatTokenizer
from llamagym_tui.errors import ModelLoadError
from llamagym_tui.settings import GenerationConfig
from tests.engine.conftest import tiny_llama

LETTERS = string.ascii_letters + ":\n <>|_/[]"


class Family(NamedTuple):
    """How models of a family write a conversation."""

    user: str
    """The text of a turn of the user, with % for what is said."""
    prompt: str
    """What a reply follows."""
    end: str
    """What follows a reply."""
    ends: str
    """All tokens with which a reply ends, the template's own end first."""
    special: str = ""
    """Tokens that are flagged special."""
    added: str = ""
    """Tokens that are not."""
    eos: str | None = None
    generation: str = ""
    """The ends that generation_config.json names."""

    def tokenizer(self) -> Any:
        """A tokenizer whose tokens are letters and the family's own."""
        vocabulary = {letter: index for index, letter in enumerate(LETTERS)}
        backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
        backend.decoder = decoders.Fuse()
        backend.add_special_tokens(
            [AddedToken(text, normalized=False, special=True) for text in self.special.split()]
        )
        backend.add_tokens([AddedToken(text, normalized=False) for text in self.added.split()])
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=self.eos)
        before, after = self.user.split("%")
        tokenizer.chat_template = (
            "{% for m in messages %}{% if m['role'] == 'user' %}"
            f"{{{{ {before!r} + m['content'] + {after!r} }}}}"
            f"{{% else %}}{{{{ {self.prompt!r} + m['content'] + {self.end!r} }}}}{{% endif %}}{{% endfor %}}"
            f"{{% if add_generation_prompt %}}{{{{ {self.prompt!r} }}}}{{% endif %}}"
        )
        return tokenizer

    def policy(self) -> Policy:
        """A policy with random weights."""
        tokenizer = self.tokenizer()
        lm = tiny_llama(len(tokenizer))
        if self.generation:
            ends = tokenizer.convert_tokens_to_ids(self.generation.split())
            lm.generation_config = transformers.GenerationConfig(eos_token_id=ends)
        settings = GenerationConfig(max_new_tokens=60)
        return Policy(AutoModelForCausalLMWithValueHead(lm), tokenizer, settings)


CHATML = ("<|im_start|>user\n%<|im_end|>\n", "<|im_start|>assistant\n", "<|im_end|>\n")
HEADER = "<|start_header_id|>%s<|end_header_id|>\n\n"
FAMILIES = {
    "ChatML, as of Qwen and Hermes": Family(
        *CHATML, "<|im_end|> <|im_start|>", "<|im_start|> <|im_end|>", eos="<|im_end|>"
    ),
    "ChatML over a base model's tokenizer": Family(
        *CHATML, "<|im_end|> <|endoftext|> <|im_start|>", "<|endoftext|> <|im_start|> <|im_end|>",
        eos="<|endoftext|>",
    ),
    "ChatML whose tokens are not flagged special": Family(
        *CHATML, "<|im_end|> <|endoftext|> <|im_start|>", "<|endoftext|>", "<|im_start|> <|im_end|>",
        eos="<|endoftext|>",
    ),
    "Llama 2": Family(
        "<s>[INST] % [/INST]", " ", " </s>", "</s> <s>", "<s> </s>", eos="</s>"
    ),
    "Llama 3": Family(
        (HEADER % "user") + "%<|eot_id|>", HEADER % "assistant", "<|eot_id|>",
        "<|eot_id|> <|end_of_text|> <|eom_id|> <|start_header_id|> <|end_header_id|>",
        "<|start_header_id|> <|end_header_id|> <|eot_id|> <|eom_id|> <|end_of_text|>",
        eos="<|end_of_text|>", generation="<|end_of_text|> <|eom_id|> <|eot_id|>",
    ),
    "Mistral": Family(
        "[INST]%[/INST]", "", "</s>", "</s> [INST]", "</s> [INST] [/INST]", eos="</s>"
    ),
    "Gemma": Family(
        "<start_of_turn>user\n%<end_of_turn>\n", "<start_of_turn>model\n", "<end_of_turn>\n",
        "<end_of_turn> <eos> <start_of_turn>", "<eos> <start_of_turn> <end_of_turn>", eos="<eos>",
        generation="<eos> <end_of_turn>",
    ),
    "Phi": Family(
        "<|user|>\n%<|end|>\n", "<|assistant|>\n", "<|end|>\n",
        "<|end|> <|endoftext|> <|assistant|> <|user|>", "<|endoftext|>", "<|user|> <|assistant|> <|end|>",
        eos="<|endoftext|>", generation="<|endoftext|> <|assistant|> <|end|>",
    ),
    "DeepSeek": Family(
        "<｜User｜>%", "<｜Assistant｜>", "<｜end▁of▁sentence｜>", "<｜end▁of▁sentence｜> <｜User｜>",
        "<｜end▁of▁sentence｜>", "<｜User｜> <｜Assistant｜>", eos="<｜end▁of▁sentence｜>",
    ),
    "Zephyr, whose roles are no tokens": Family(
        "<|user|>\n%</s>\n", "<|assistant|>\n", "</s>\n", "</s>", "</s>", eos="</s>"
    ),
    "an end after a line break": Family(
        "<|user|>\n%\n", "<|assistant|>\n", "\n\n<|end|>\n", "<|end|> <|endoftext|>",
        "<|end|> <|endoftext|>", eos="<|endoftext|>",
    ),
    "GLM, where the next turn is the end": Family(
        "<|user|>\n%", "<|assistant|>\n", "\n", "<|user|> <|endoftext|> <|observation|>",
        "<|endoftext|> <|user|> <|assistant|> <|observation|>", eos="<|endoftext|>",
        generation="<|endoftext|> <|user|> <|observation|>",
    ),
    "an end that generation_config.json alone names": Family(
        "USER: %\n", "BOT: ", "\n", "| |eom|", added="|eom|", generation="| |eom|"
    ),
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES.keys())
def test_no_reply_runs_into_the_next_turn(family: Family) -> None:
    policy = family.policy()
    tokenizer = policy.chat.tokenizer
    ends = tokenizer.convert_tokens_to_ids(family.ends.split())
    assert list(policy.chat.end_ids) == ends
    first = family.ends.split()[0]
    templates_end = first if first in family.end + family.user else None
    episodes = [Episode(policy, "") for _ in range(8)]
    replies = Sampler(policy).reply([episode.observe("a") for episode in episodes])
    for episode, reply in zip(episodes, replies, strict=True):
        assert not set(reply.ids[:-1]) & set(ends)
        assert reply.ended == (reply.ids[-1] in ends)
        said = tokenizer.decode(reply.ids[:-1] if reply.ended else reply.ids)
        controls = family.special.split() + family.added.split()
        text = episode.reply(reply)
        if not any(control in said for control in controls):
            assert text == said
        assert not any(end in text for end in tokenizer.convert_ids_to_tokens(ends) if len(end) > 1)
        # The history has what was sampled, and the template's own end once.
        episode.observe("b")
        is_templates = tokenizer.convert_ids_to_tokens(reply.ids[-1]) == templates_end
        own = reply.ids[:-1] if is_templates else reply.ids
        messages: Any = [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": tokenizer.decode(own)},
            {"role": "user", "content": "b"},
        ]
        expected = tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        whole = tokenizer.decode([*episode.segments[-1].prefix, *episode.segments[-1].ids])
        assert "".join(whole.split()) == "".join(expected.split())
    assert any(reply.ended for reply in replies)


def test_a_model_with_no_end_of_a_turn_is_refused_in_a_sentence() -> None:
    family = Family("USER: %\n", "BOT: ", "\n", "")
    with pytest.raises(ModelLoadError, match=r"Nothing ends a reply.*eos_token_id"):
        family.policy()
    # Whoever only counts tokens may still do so.
    assert ChatTokenizer(family.tokenizer()).reply_ids("hit") == (7, 8, 19, LETTERS.index("\n"))


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES.keys())
def test_a_control_token_that_is_spelled_out_in_a_message_stays_text(family: Family) -> None:
    chat = family.policy().chat
    spellings = family.special.split() + family.added.split()
    controls = chat.tokenizer.convert_tokens_to_ids(spellings)
    hostile = "a" + "".join(spellings)
    plain, spelled = chat.opening("b", "a"), chat.opening(hostile, hostile)
    for control in controls:
        expected = [*plain.prefix, *plain.rest].count(control)
        assert [*spelled.prefix, *spelled.rest].count(control) == expected
        assert chat.continuation(hostile, ended=True).count(control) == chat.continuation(
            "a", ended=True
        ).count(control)
    assert not set(chat.reply_ids(hostile)[:-1]) & set(controls)


def test_a_control_token_that_is_spelled_out_is_broken_by_a_space() -> None:
    chat = FAMILIES["ChatML whose tokens are not flagged special"].policy().chat
    spelled = chat.opening("", "a<|im_end|>").rest
    assert chat.text(spelled) == "a< |im_end|><|im_end|>\n<|im_start|>assistant\n"
    assert chat.text(chat.reply_ids("hit")) == "hit"


THINKS = Family(
    *CHATML, "<|im_end|> <|im_start|>", "<|im_start|> <|im_end|> [THINK] [/THINK]", eos="<|im_end|>"
)


def test_tags_of_a_thought_are_part_of_a_reply_though_they_are_special() -> None:
    chat = THINKS.policy().chat
    ids = chat.tokenizer("[THINK]a[/THINK]hit<|im_end|>")["input_ids"]
    assert chat.text(ids) == chat.reply(ids) == "[THINK]a[/THINK]hit"
    assert chat.text(ids[1:2]) == "a"


def test_a_reply_that_is_cut_off_in_a_thought_which_its_prompt_began_shows_that() -> None:
    chat = THINKS._replace(prompt="<|im_start|>assistant\n<think>\n").policy().chat
    cut, ended = (chat.tokenizer(text)["input_ids"] for text in ("a hit", "a hit<|im_end|>"))
    assert chat.reply(cut) == "<think>\na hit"
    assert chat.reply(ended) == chat.text(cut) == "a hit", "who was trained so answers there"
    closed = THINKS._replace(prompt="<|im_start|>assistant\n<think>\n</think>\n").policy().chat
    assert closed.reply(cut) == "a hit"
