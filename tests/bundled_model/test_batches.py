"""Conversations packed under a shared prompt: the same logits as one by one, and marks on the right tokens."""

from __future__ import annotations

import pytest
import torch

from llamagym_tui.engine.model.sources import bundled_model_path
from llamagym_tui.engine.tokens.tokenization import ChatTokenizer
from scripts.bundled_model import worlds
from scripts.bundled_model.batches import in_tokens, pack
from scripts.bundled_model.beginning import new_model
from scripts.bundled_model.lessons import Chance, Exchange, Lesson, Mark


@pytest.fixture(scope="module")
def chat():
    from transformers import AutoTokenizer

    return ChatTokenizer(AutoTokenizer.from_pretrained(bundled_model_path()))


def test_each_integer_below_100_is_one_token_with_and_without_a_space(chat):
    for number in range(100):
        assert (
            len(chat.tokenizer.encode(f"{number}")) == len(chat.tokenizer.encode(f" {number}")) == 1
        )


def test_a_packed_conversation_has_the_logits_that_it_has_alone(chat):
    model = new_model(chat.tokenizer, 0)
    lessons = [worlds.lesson(Chance(seed), 3) for seed in range(4)]
    rows = [in_tokens(lesson, chat) for lesson in lessons]
    batch = pack(rows)
    model.set_attn_implementation("shared_prefix")
    packed = model.model(
        input_ids=batch.ids,
        position_ids=batch.positions,
        attention_mask=batch.mask,
        use_cache=False,
        batch=batch,
    ).last_hidden_state
    own = (batch.ids.shape[1] - batch.prefix) // 3
    model.set_attn_implementation("eager")
    for at, row in enumerate(rows):
        for number, conversation in enumerate(row.conversations):
            ids = torch.tensor([row.prefix + conversation])
            alone = model.model(input_ids=ids).last_hidden_state[0, len(row.prefix) :]
            start = batch.prefix + number * own
            assert (packed[at, start : start + len(conversation)] - alone).abs().max() < 1e-4


def test_targets_are_the_replies_and_nothing_else(chat):
    row = in_tokens(Lesson("Play.", [[Exchange("Angle 7.", '{"action": 1}')]]), chat)
    (ids,), (targets,) = row.conversations, row.targets
    trained = [at for at, target in enumerate(targets) if target >= 0]
    assert (
        [targets[at] for at in trained]
        == [ids[at + 1] for at in trained]
        == list(chat.reply_ids('{"action": 1}'))
    )


def test_a_mark_is_read_off_the_token_of_its_word(chat):
    text = "Speed 52, angle 7."
    made = Lesson(
        "Play.", [[Exchange(text, '{"action": 1}', (), (), (Mark(7, "no"), Mark(16, "yes")))]]
    )
    row = in_tokens(made, chat)
    words = [
        chat.tokenizer.decode([row.conversations[0][column]]).strip() for column, _ in row.marks[0]
    ]
    assert words == ["52", "7"]
