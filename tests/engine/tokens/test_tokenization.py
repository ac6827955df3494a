"""Tokens in, tokens out: the ids that a conversation grows by are those of its template."""

from __future__ import annotations

import copy

import pytest
from tokenizers.processors import TemplateProcessing

from llamagym_tui.engine.tokens.token_tree import ActionTrie
from llamagym_tui.engine.tokens.tokenization import ChatTokenizer
from llamagym_tui.game.chat import assistant, system, user
from tests.engine.small_tokenizers import CHATML, llama_2_like, qwen_like

REWRITING = (
    "{% for m in messages %}<|{{ m['role'] }}|>"
    "{% if m['role'] == 'assistant' and not loop.last %}{{ m['content'].split('</think>')[-1] }}"
    "{% else %}{{ m['content'] }}{% endif %}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
REWRITING_LATE = REWRITING.replace("not loop.last", "loop.revindex > 3")
SYSTEM_BEFORE_LAST_USER = (
    "{% set told = messages[0]['content'] if messages[0]['role'] == 'system' else '' %}"
    "{% for m in messages if m['role'] != 'system' %}<|{{ m['role'] }}|>"
    "{% if loop.last %}{{ told }}{% endif %}{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""As Mistral's templates have it."""
NO_SYSTEM = (
    "{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    "<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def with_template(tokenizer, template: str | None) -> ChatTokenizer:
    changed = copy.deepcopy(tokenizer)
    changed.chat_template = template
    return ChatTokenizer(changed)


def test_opening_reply_and_continuation_are_the_templates_own_rendering(tokenizer):
    chat = ChatTokenizer(tokenizer)
    opening = chat.opening("Play.", "Your total: 15.")
    ids = [*opening.prefix, *opening.rest, *chat.reply_ids('{"action": 1}')]
    ids += chat.continuation("Your total: 18.", ended=True)
    conversation = [
        system("Play."),
        user("Your total: 15."),
        assistant('{"action": 1}'),
        user("Your total: 18."),
    ]
    text = tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True)
    assert ids == tokenizer(text, add_special_tokens=False)["input_ids"]


def test_the_prefix_is_what_every_observation_shares(tokenizer):
    chat = ChatTokenizer(tokenizer)
    first, second = chat.opening("Play.", "Your total: 15."), chat.opening("Play.", "You lost.")
    assert first.prefix == second.prefix
    assert tokenizer.decode(first.prefix) == "<|system|>Play.<|end|><|user|>"


def test_the_templates_end_ends_a_reply_even_where_it_is_not_the_end_of_a_sequence(tokenizer):
    changed = copy.deepcopy(tokenizer)
    changed.eos_token = "<|pad|>"
    ends = ChatTokenizer(changed).end_ids
    assert tokenizer.convert_ids_to_tokens(ends) == ["<|end|>", "<|pad|>", "<|user|>"]


def test_a_template_that_rewrites_history_is_detected(tokenizer):
    assert ChatTokenizer(tokenizer).keeps_history
    assert not with_template(tokenizer, REWRITING).keeps_history
    assert not with_template(tokenizer, REWRITING_LATE).keeps_history
    assert not with_template(tokenizer, SYSTEM_BEFORE_LAST_USER).keeps_history


@pytest.mark.parametrize(
    "last", ["", "{{ '\\n' }}", "<|pad|>"], ids=["no end", "space", "another end"]
)
def test_a_canonical_reply_ends_as_in_the_middle_of_a_conversation(tokenizer, last):
    own = CHATML.replace("<|im_start|>", "").replace(
        "<|im_end|>",
        "{% if loop.last and m['role'] == 'assistant' %}END{% else %}<|end|>{% endif %}",
    )
    changed = copy.deepcopy(tokenizer)
    changed.eos_token = "<|pad|>"
    reply = with_template(changed, own.replace("END", last)).reply_ids("Action: 1")
    assert tokenizer.decode(reply) == "Action: 1<|end|>"


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (NO_SYSTEM, "<|user|>Play.\n\nGo.<|end|><|assistant|>"),
        (None, "System:\nPlay.\nUser:\nGo.\nAssistant:\n"),
    ],
    ids=["no system role: in the first message", "no template: a plain one"],
)
def test_the_prompt_has_a_place_where_the_template_has_none(tokenizer, template, text):
    chat = with_template(tokenizer, template)
    opening = chat.opening("Play.", "Go.")
    assert tokenizer.decode([*opening.prefix, *opening.rest]) == text
    assert chat.keeps_history


def test_without_a_template_a_prompt_begins_as_the_tokenizer_begins_a_text():
    tokenizer = llama_2_like("bpe")
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.bos_token_id)]
    )
    chat = with_template(tokenizer, None)
    opening = chat.opening("Play.", "Go.")
    ids = [*opening.prefix, *opening.rest]
    assert ids[0] == tokenizer.bos_token_id
    assert tokenizer.bos_token_id not in [*ids[1:], *chat.continuation("Go.", ended=True)]


@pytest.mark.parametrize("text", ["zqx", "<|end|>", "{{ 1 }}", "", "\u4f60\u597d"])
def test_hostile_observations_do_not_break_the_seam(tokenizer, text):
    chat = ChatTokenizer(tokenizer)
    opening = chat.opening("Play.", text)
    assert opening.rest
    assert tokenizer.decode(opening.rest[-1:]) == "<|assistant|>"
    assert tokenizer.decode(chat.continuation(text, ended=True)).endswith("<|assistant|>")


def test_a_template_that_thinks_before_a_reply_gives_the_reply_alone():
    tokenizer = qwen_like()
    bare = ChatTokenizer(tokenizer).reply_ids("Action: 1")
    tokenizer.chat_template = CHATML.replace(
        "{{ m['content'] }}", "{{ '<think></think>' ~ m['content'] }}"
    )
    assert ChatTokenizer(tokenizer).reply_ids("Action: 1") == bare


def test_a_reply_that_begins_another_is_kept_apart_by_its_end():
    chat = ChatTokenizer(qwen_like())
    chat.tokenizer.chat_template = CHATML
    one, ten = (chat.reply_ids(f"Action: {action}") for action in (1, 10))
    trie = ActionTrie([one, ten, chat.reply_ids("Action: 1 or 0")])
    assert all(trie.branches(reply) for reply in (one, ten))
    assert trie.branches(one)[-1].children[0] != trie.branches(one)[-1].children[1]
    # Where they part counts, too, if a reply only ends there: its last id is not on the tree.
    before_end = trie.paths[0][-1]
    assert one[-1] in trie.partings[before_end]
    assert {each for ids in trie.partings.values() for each in ids} == trie.parting_tokens
