"""The trunk of a Llama-like model on a flat tree, and on one token more of many conversations.

On a tree nothing is padded, the prefix is computed once, and the last layer only for what is read. While decoding, the
keys and values of a prefix that all conversations share are read once for all of them, not in each row. The model's
own modules compute everything but attention, so adapters, biases and norms of heads are theirs. Whether that gives the
model's own log-probabilities and gradients is found out when it loads (`sharing`).
"""

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from transformers.cache_utils import Cache
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from llamagym_tui.engine.allocator import return_freed_memory
from llamagym_tui.engine.model.caches import RaggedCache
from llamagym_tui.engine.tokens.flat_tree import FlatTree, Queries

FAMILY = frozenset({"llama", "mistral", "qwen2", "qwen3"})
"""Architectures that are Llama's but for biases, norms of heads, and windows."""

LARGE, APART = 2**23, 4
"""Numbers in the hidden states of all layers from which on a forward gives back, so many layers apart, the memory in
the gaps between what its gradient needs: without that, some 1.5 times as much as this needs is taken."""


def is_llama_like(config: Any) -> bool:
    """Whether a model is of the family, without a sliding window."""
    sliding = "sliding_attention" in (getattr(config, "layer_types", None) or ())
    return (
        config.model_type in FAMILY and not sliding and not getattr(config, "sliding_window", None)
    )


def read_states(decoder: Any, flat: FlatTree) -> Tensor:
    """(M, D) hidden states, after the final norm, of the tokens that are read."""
    hidden = decoder.embed_tokens(flat.ids)
    cos, sin = decoder.rotary_emb(hidden, flat.positions[None])
    half = cos.shape[-1] // 2
    rotation = torch.complex(cos[0, :, None, :half], sin[0, :, None, :half])  # (N, 1, D / 2)
    *layers, last = decoder.layers
    is_large = hidden.numel() * len(decoder.layers) >= LARGE
    for index, layer in enumerate(layers):
        if is_large and index % APART == 0:
            return_freed_memory()
        normed = layer.input_layernorm(hidden)
        hidden = hidden + _attended(layer.self_attn, normed, normed, rotation, rotation, flat.every)
        hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
    normed, hidden = last.input_layernorm(hidden), hidden.index_select(0, flat.read)
    asking = normed.index_select(0, flat.read)
    hidden = hidden + _attended(
        last.self_attn, asking, normed, rotation[flat.read], rotation, flat.last
    )
    return decoder.norm(hidden + last.mlp(last.post_attention_layernorm(hidden)))


def _attended(
    attention: Any,
    asking: Tensor,
    normed: Tensor,
    rotation: Tensor,
    of_keys: Tensor,
    queries: Queries,
) -> Tensor:
    """What attention adds to the queries' hidden states."""
    query, key, value = _projected(attention, asking, normed)
    mixed = _mixed(
        _rotated(query, rotation), _rotated(key, of_keys), value, queries, attention.scaling
    )
    return attention.o_proj(mixed.flatten(-2))


def _projected(attention: Any, asking: Tensor, normed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries (Q, H, D), and keys and values (N, K, D)."""
    query, key, value = (
        project(states).unflatten(-1, (-1, attention.head_dim))
        for project, states in (
            (attention.q_proj, asking),
            (attention.k_proj, normed),
            (attention.v_proj, normed),
        )
    )
    if hasattr(attention, "q_norm"):
        query, key = attention.q_norm(query), attention.k_norm(key)
    return query, key, value


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
        asking = query.index_select(0, blocks.queries.flatten()).view(
            count, size, shared, heads // shared, -1
        )
        keys, values = (
            each.index_select(0, blocks.keys.flatten())
            .view(count, -1, *each.shape[1:])
            .transpose(1, 2)
            for each in (key, value)
        )
        rows = asking.permute(0, 2, 3, 1, 4).flatten(2, 3)
        mask = blocks.mask.repeat(1, 1, heads // shared, 1)
        mixed = F.scaled_dot_product_attention(rows, keys, values, attn_mask=mask, scale=scale)
        found.append(
            mixed.unflatten(2, (-1, size))
            .permute(0, 3, 1, 2, 4)
            .reshape(-1, heads, query.shape[-1])
        )
    return torch.cat(found).index_select(0, queries.order)


def next_states(decoder: Any, ids: Tensor, cache: RaggedCache, prefix: Cache) -> Tensor:
    """(B, 1, D) hidden states, after the final norm, of one id (B,) more in each of the first rows of a cache.

    All these rows begin with the recorded prefix; the cache aims at where the ids stand.
    """
    _, columns, width = cache.target
    hidden, begin = decoder.embed_tokens(ids), prefix.get_seq_length()
    cos, sin = (each[:, 0] for each in decoder.rotary_emb(hidden, columns))
    unseen = (torch.arange(begin, width, device=ids.device) > columns)[:, None, None]
    mask = hidden.new_zeros(unseen.shape).masked_fill_(unseen, torch.finfo(hidden.dtype).min)
    for index, layer in enumerate(decoder.layers):
        attention = layer.self_attn
        normed = layer.input_layernorm(hidden)
        query, key, value = _projected(attention, normed, normed)
        query, key = apply_rotary_pos_emb(query, key, cos, sin)
        keys, values = cache.layers[index].update(key[:, :, None], value[:, :, None])
        grouped = (query * attention.scaling).unflatten(1, (key.shape[1], -1))  # (B, K, H / K, D)
        first = prefix.layers[index]
        scores = [_of_all(grouped, first.keys[0].mT), grouped @ keys[:, :, begin:].mT + mask]
        shares = torch.cat(scores, dim=-1).softmax(-1)
        mixed = (
            _of_all(shares[..., :begin], first.values[0])
            + shares[..., begin:] @ values[:, :, begin:]
        )
        hidden = hidden + attention.o_proj(mixed.flatten(1))
        hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
    return decoder.norm(hidden)[:, None]


def _of_all(grouped: Tensor, shared: Tensor) -> Tensor:
    """(B, K, G, M): grouped (B, K, G, N) times what all B rows share, (K, N, M), as one product for each of K."""
    rows, _, group, _ = grouped.shape
    return (
        (grouped.transpose(0, 1).flatten(1, 2) @ shared).unflatten(1, (rows, group)).transpose(0, 1)
    )
