"""Writes a small Llama-like model as GGUF, as llama.cpp's converter lays it out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np


def write_gguf(
    path: Path,
    lm: Any,
    tokenizer: Any,
    more: Callable[[gguf.GGUFWriter], object] = lambda writer: None,
    *,
    architecture: str = "llama",
    header: bool = True,
    leave_out: str = "",
    tensors: dict[str, np.ndarray] | None = None,
) -> Path:
    """A file with a model's weights; with no `header` it has only what `more` adds.

    Args:
        more: adds keys to the header.
        leave_out: a tensor that the file does not have.
        tensors: others that it has.
    """
    writer = gguf.GGUFWriter(str(path), architecture)
    if header:
        _write_header(writer, lm.config, tokenizer)
    more(writer)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, lm.config.num_hidden_layers)
    heads = {
        "attn_q": lm.config.num_attention_heads,
        "attn_k": lm.config.num_key_value_heads,
    }
    weights = {
        f"{names.get_name(name.removesuffix('.weight'))}.weight": weight.detach().numpy()
        for name, weight in lm.named_parameters()
    }
    for name, weight in (weights | (tensors or {})).items():
        kind = name.split(".")[-2]
        if architecture == "llama" and kind in heads:
            weight = _interleaved(weight, heads[kind])
        if name != leave_out:
            writer.add_tensor(name, np.ascontiguousarray(weight, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _interleaved(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows of queries or keys in llama.cpp's order, where the two numbers that a position turns lie side by side."""
    halves = weight.reshape(heads, 2, -1, weight.shape[1])
    return halves.swapaxes(1, 2).reshape(weight.shape)


def _write_header(writer: gguf.GGUFWriter, config: Any, tokenizer: Any) -> None:
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    tokens = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)
    special = set(tokenizer.all_special_tokens)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(
        [gguf.TokenType.CONTROL if each in special else gguf.TokenType.NORMAL for each in tokens]
    )
    writer.add_token_merges([" ".join(pair) for pair in backend["model"]["merges"]])
    writer.add_eos_token_id(tokenizer.eos_token_id)
