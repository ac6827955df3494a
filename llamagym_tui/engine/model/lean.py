"""The trunk of a Llama-like model (all but its LM head) on a flat tree.

The textbook runs each conversation as a padded row of its own. Here the tokens that conversations have in common stand
once, in a tree that is laid flat (`llamagym_tui.engine.tokens.flat_tree`), and each conversation is a path through it.
That is exact: embedding, norms, feed-forward layers and the projections of attention compute each token by itself, so
only attention has to know which tokens stand before which. The model's own modules compute all the former, so
adapters, biases and norms of heads are theirs; attention is computed here. It differs from the textbook in two ways:

- on a tree nothing is padded, and shared beginnings are computed once;
- in the last layer only the tokens that are read pass, because nothing is computed from the others.

Loading compares this with transformers' own forward (`llamagym_tui.engine.model.forward`).

Notation: N tokens of a tree, M of them read in the end, Q queries (N, and M in the last layer), D hidden size, H heads
of queries, K heads of keys and values, G = H / K heads of queries that share one of these, E numbers of a head, B rows,
P tokens of the prefix, W columns of a cache.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from llamagym_tui.engine.model.shape import first_length
from llamagym_tui.engine.tokens.flat_tree import FlatTree, Queries

FAMILY = frozenset({"llama", "mistral", "qwen2", "qwen3"})
"""Architectures that are Llama's but for biases, norms of heads, and windows."""


def is_llama_like(config: Any) -> bool:
    """True for a model of the family without a sliding window and without longrope."""
    kinds_of_layers = getattr(config, "layer_types", None) or ()
    if "sliding_attention" in kinds_of_layers or getattr(config, "sliding_window", None):
        return False
    return config.model_type in FAMILY and first_length(config) is None


def read_states(decoder: Any, flat: FlatTree) -> Tensor:
    """(M, D) hidden states, after the final norm, of the tokens that are read, as the LM head reads them.

    Args:
        decoder: the trunk.
        flat: the tree.
    """
    # Without a dimension for the batch: all rows of the textbook are one row of tokens here.
    hidden = decoder.embed_tokens(flat.ids)  # (N, D)
    *layers, last = decoder.layers
    rotation = _rotation(decoder, hidden, flat.positions)
    for layer in layers:
        hidden = _through(layer, hidden, rotation, flat.every)

    # In the last layer, keys and values of all N tokens are needed, but queries only of the M that are read, and from
    # attention on nothing else is computed. Of the others nothing would be used, so their gradient is 0 either way.
    hidden = _through(last, hidden, rotation, flat.last, flat.read)  # (M, D)
    return decoder.norm(hidden)


def states_of_layers(decoder: Any, flat: FlatTree, layers: Sequence[int]) -> Tensor:
    """(L, M, D) hidden states, after the final norm, of the tokens that are read, after each of L numbers of layers.

    Args:
        decoder: the trunk.
        flat: the tree.
        layers: ascending numbers of layers.
    """
    hidden = decoder.embed_tokens(flat.ids)  # (N, D)
    rotation = _rotation(decoder, hidden, flat.positions)
    found: list[Tensor] = []
    for number, layer in enumerate(decoder.layers, start=1):
        hidden = _through(layer, hidden, rotation, flat.every)
        if number in layers:
            found.append(decoder.norm(hidden.index_select(0, flat.read)))
    return torch.stack(found)


def _rotation(decoder: Any, hidden: Tensor, positions: Tensor) -> Tensor:
    """(N, 1, E / 2) rotary positions. A token's position counts the tokens before it on its path, not in the row."""
    cos, sin = decoder.rotary_emb(hidden, positions[None])  # (1, N, E) each
    half = cos.shape[-1] // 2  # the second half repeats the first
    return torch.complex(cos[0, :, None, :half].float(), sin[0, :, None, :half].float())


def _through(
    layer: Any, hidden: Tensor, rotation: Tensor, queries: Queries, read: Tensor | None = None
) -> Tensor:
    """(Q, D) hidden states after one of the textbook's layers: x + attention(norm(x)), then x + feed_forward(norm(x)).

    Args:
        layer: the model's own module.
        hidden: (N, D).
        rotation: (N, 1, E / 2) of all positions.
        queries: the tokens that each query sees.
        read: (M,) places of the queries. None: all N tokens ask.
    """
    normed = layer.input_layernorm(hidden)
    asking = normed
    rotation_of_queries = rotation
    if read is not None:
        hidden = hidden.index_select(0, read)
        asking = normed.index_select(0, read)
        rotation_of_queries = rotation[read]
    attention = layer.self_attn
    query, key, value = _projected(attention, asking, normed)
    query = _rotated(query, rotation_of_queries)
    key = _rotated(key, rotation)
    mixed = _mixed(query, key, value, queries, attention.scaling)  # (Q, H, E)
    hidden = hidden + attention.o_proj(mixed.flatten(-2))
    return hidden + layer.mlp(layer.post_attention_layernorm(hidden))


def _projected(attention: Any, asking: Tensor, normed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries (Q, H, E), and keys and values (N, K, E), not rotated yet."""
    by_head = (-1, attention.head_dim)  # of H x E numbers, or K x E
    query = attention.q_proj(asking).unflatten(-1, by_head)
    key = attention.k_proj(normed).unflatten(-1, by_head)
    value = attention.v_proj(normed).unflatten(-1, by_head)
    if hasattr(attention, "q_norm"):  # Qwen3 norms each head
        query = attention.q_norm(query)
        key = attention.k_norm(key)
    return query, key, value


def _rotated(heads: Tensor, rotation: Tensor) -> Tensor:
    """Queries or keys (Q, H, E) turned by their positions.

    The model turns number i of a head together with number i + E / 2, as the two coordinates of a point. Here the two
    come to stand side by side, as one complex number, which one product turns. They stay side by side: the numbers of
    a head are in another order than the model's, but in the same order in queries and keys, so their products, which
    are all that attention takes of them, are the same.
    """
    pairs = heads.unflatten(-1, (2, -1)).transpose(-1, -2)  # (Q, H, E / 2, 2)
    turned = torch.view_as_complex(pairs.float().contiguous()) * rotation  # (Q, H, E / 2)
    return torch.view_as_real(turned).flatten(-2).to(heads.dtype)


def _mixed(query: Tensor, key: Tensor, value: Tensor, queries: Queries, scale: float) -> Tensor:
    """(Q, H, E) mixed values of the tokens that each query sees.

    One attention of all N tokens to all N would mostly compute scores that the mask throws away: a token sees its
    ancestors alone. So queries that stand near one another, and have nearly the same ancestors, form a block, and only
    the keys that some query of the block sees are gathered for it. `queries.blocks` holds tensors of blocks of similar
    width, n blocks of S queries and T keys in each.
    """
    heads = query.shape[1]
    kv_heads = key.shape[1]
    found = []
    for blocks in queries.blocks:
        count, size = blocks.queries.shape  # n, S
        asking = query.index_select(0, blocks.queries.flatten())  # (n S, H, E)
        asking = asking.view(count, size, kv_heads, heads // kv_heads, -1)  # (n, S, K, G, E)
        # The G heads that share keys and values stand one below the other, as if they were more queries of one head:
        # so keys and values are not repeated for each of them.
        rows = asking.permute(0, 2, 3, 1, 4).flatten(2, 3)  # (n, K, G S, E)
        keys = _gathered(key, blocks.keys)
        values = _gathered(value, blocks.keys)
        mask = blocks.mask.to(query.dtype).repeat(1, 1, heads // kv_heads, 1)  # (n, 1, G S, T)
        mixed = F.scaled_dot_product_attention(rows, keys, values, attn_mask=mask, scale=scale)
        by_query = mixed.unflatten(2, (-1, size)).permute(0, 3, 1, 2, 4)  # (n, S, K, G, E)
        found.append(by_query.reshape(-1, heads, query.shape[-1]))
    # Back from the order of blocks to that of the queries. A block that is not full has its last query several times,
    # of which one is taken.
    return torch.cat(found).index_select(0, queries.order)


def _gathered(states: Tensor, indices: Tensor) -> Tensor:
    """(n, K, T, E) keys or values (N, K, E) of the (n, T) tokens that each of n blocks needs."""
    found = states.index_select(0, indices.flatten())
    return found.view(len(indices), -1, *states.shape[1:]).transpose(1, 2)
