"""Tokenizers of the families that matter, trained on a few lines: byte-level BPE with ChatML, SentencePiece-like."""

from __future__ import annotations

from typing import Any

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)
from transformers import PreTrainedTokenizerFast

CORPUS = [
    'You have 12. Reply with {"action": 0} or {"action": 1}.',
    "Action: 0 Action: 1 Action: 10",
    "[INST] a [/INST]",
]
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA_2 = (
    "{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('none') }}"
    "{% elif m['role'] == 'user' %}{{ bos_token + '[INST] ' + m['content'].strip() + ' [/INST]' }}"
    "{% else %}{{ ' ' + m['content'].strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
)


def qwen_like() -> Any:
    """Byte-level BPE; its control tokens stand outside the model's vocabulary."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=320, initial_alphabet=alphabet)
    )
    backend.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    backend.add_tokens(["<think>", "</think>"])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    tokenizer.chat_template = CHATML
    return tokenizer


def llama_2_like(kind: str) -> Any:
    """SentencePiece's manner: space as a letter, one put before the text, control tokens in the model's vocabulary."""
    controls = [
        AddedToken(text, normalized=False, special=True) for text in ("<unk>", "<s>", "</s>")
    ]
    if kind == "bpe":
        backend = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
        trainer = trainers.BpeTrainer(vocab_size=150, special_tokens=controls)
        backend.normalizer = normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        )
    else:
        backend = Tokenizer(models.Unigram())
        trainer = trainers.UnigramTrainer(vocab_size=80, special_tokens=controls, unk_token="<unk>")
        backend.pre_tokenizer = pre_tokenizers.Metaspace(
            prepend_scheme="first", split=kind == "split"
        )
    letters = ["abcdefghijklmnopqrstuvwxyz <>|_/[]{}:0123456789\n\"'."]
    backend.train_from_iterator(CORPUS + letters, trainer)
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse()])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        pad_token="</s>",
    )
    tokenizer.chat_template = LLAMA_2
    return tokenizer
