"""The model's tokenizer: byte-level BPE, trained on the recipe's own lessons, with its chat template."""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerFast

from scripts.bundled_model import worlds
from scripts.bundled_model.lessons import Chance
from scripts.bundled_model.mixture import lesson

VOCABULARY = 2048
SPECIAL = ["<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
OPENING = '{"action":'
"""The reply's opening is one token, so that a reply is four."""
TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>"
    "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] }}<|end|>{% endgeneration %}"
    "{% else %}{{ message['content'] }}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def train_tokenizer(seed: int) -> PreTrainedTokenizerFast:
    """A tokenizer for the lessons, and for any bytes."""
    rng = Chance(seed)
    texts = []
    for _ in range(6000):
        made = lesson(rng, 1)
        texts += [
            made.system_prompt,
            *(part for turns in made.conversations for turn in turns for part in turn[:2]),
        ]
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    numbers = [form.format(n) for n in range(100) for form in (" {}", "{}")] * 400
    words = sorted(
        {
            word
            for name in (*worlds.ACTIONS, *worlds.FEATURES, *worlds.THINGS)
            for word in name.split()
        }
    )
    forms = [
        f"{space}{form}" for word in words for form in (word, word.title()) for space in ("", " ")
    ] * 200
    tokenizer.train_from_iterator([*texts, *numbers, *forms] + ENGLISH * 20, trainer)
    tokenizer.add_tokens([AddedToken(OPENING, normalized=False)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<|pad|>",
        eos_token="<|end|>",
        additional_special_tokens=SPECIAL[2:],
        chat_template=TEMPLATE,
        model_max_length=4096,
        clean_up_tokenization_spaces=False,
    )


ENGLISH = [
    "You are in a room. There is a door to the north and a key on the table. Your inventory is empty.",
    "The ice is slippery. There are holes in the lake. You are standing on the start. The goal is two steps away.",
    "Think before you act, then answer with one action in the format shown. Do not explain your choice.",
    "The passenger is waiting at the red location and wants to go to the blue one. The taxi is at row 2, column 3.",
    "Your position, velocity, angle and angular velocity are given as numbers. The episode ends when the pole falls.",
]
"""Everyday sentences of text environments, so that such words are not spelt letter by letter."""
