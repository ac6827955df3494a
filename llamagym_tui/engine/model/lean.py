"""The trunk of a Llama-like model on a flat tree: no padding, the prefix once, the last layer for what is read alone.

The model's own modules compute everything but attention, so adapters, biases and norms of heads are theirs. Whether
that gives the model's own log-probabilities and gradients is found out when it loads (`sharing`).
"""

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from llamagym_tui.engine.tokens.flat_tree import FlatTree, Queries

FAMILY = frozenset({"llama", "mistral", "qwen2", "qwen3"})
"""Architectures that are Llama's but for biases, norms of heads, and windows."""


def is_llama_like(config: Any) -> bool:
    """Whether a model is of the family, without a sliding window."""
    sliding = "sliding_attention" in (getattr(config, "layer_types", None) or ())
    return config.model_type in FAMILY and not sliding and not getattr(config, "sliding_window", None)


def read_states(decoder: Any, flat: FlatTree) -> Tensor:
    """(M, D) hidden states, after the final norm, of the tokens that are read."""
    hidden = decoder.embed_tokens(flat.ids)
    rotation = _rotation(*decoder.rotary_emb(hidden, flat.positions[None]))
    *layers, last = decoder.layers
    for layer in layers:
        normed = layer.input_layernorm(hidden)
        hidden = hidden + _attended(layer.self_attn, normed, normed, rotation, rotation, flat.every)
        hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
    normed, hidden = last.input_layernorm(hidden), hidden.index_select(0, flat.read)
    asking = normed.index_select(0, flat.read)
    hidden = hidden + _attended(last.self_attn, asking, normed, rotation[flat.read], rotation, flat.last)
    return decoder.norm(hidden + last.mlp(last.post_attention_layernorm(hidden)))


def _rotation(cos: Tensor, sin: Tensor) -> Tensor:
    """(N, 1, D / 2) complex."""
    half = cos.shape[-1] // 2
    return torch.complex(cos[0, :, None, :half], sin[0, :, None, :half])


def _attended(
    attention: Any, asking: Tensor, normed: Tensor, rotation: Tensor, of_keys: Tensor, queries: Queries
) -> Tensor:
    """What attention adds to the queries' hidden states."""
    query, key, value = (
        project(states).unflatten(-1, (-1, attention.head_dim))
        for project, states in ((attention.q_proj, asking), (attention.k_proj, normed), (attention.v_proj, normed))
    )
    if hasattr(attention, "q_norm"):
        query, key = attention.q_norm(query), attention.k_norm(key)
    mixed = _mixed(_rotated(query, rotation), _rotated(key, of_keys), value, queries, attention.scaling)
    return attention.o_proj(mixed.flatten(-2))


def _rotated(heads: Tensor, rotation: Tensor) -> Tensor:
    """Queries or keys turned by their positions; what a model turns together comes to stand together, in both."""
    pairs = heads.unflatten(-1, (2, -1)).transpose(-1, -2).contiguous()
    return torch.view_as_real(torch.view_as_complex(pairs) * rotation).flatten(-2)


def _mixed(query: Tensor, key: Tensor, value: Tensor, queries: Queries, scale: float) -> Tensor:
    """(Q, H, D) values of what each query sees; heads that share keys and values stand together, as rows of one."""
    heads, shared = query.shape[1], key.shape[1]
    found = []
    for blocks in queries.blocks:
        count, size = blocks.queries.shape
        asking = query.index_select(0, blocks.queries.flatten()).view(count, size, shared, heads // shared, -1)
        keys, values = (
            each.index_select(0, blocks.keys.flatten()).view(count, -1, *each.shape[1:]).transpose(1, 2)
            for each in (key, value)
        )
        rows = asking.permute(0, 2, 3, 1, 4).flatten(2, 3)
        mask = blocks.mask.repeat(1, 1, heads // shared, 1)
        mixed = F.scaled_dot_product_attention(rows, keys, values, attn_mask=mask, scale=scale)
        found.append(mixed.unflatten(2, (-1, size)).permute(0, 3, 1, 2, 4).reshape(-1, heads, query.shape[-1]))
    return torch.cat(found).index_select(0, queries.order)
