"""Running a causal LM where only some positions need logits.

`Backbone` calls the decoder and the LM head apart, after checking on the loaded model that this gives the model's own
logits; where it does not (scaled or capped logits), the whole model runs and positions are picked afterwards. Position
ids and 4-D masks are always explicit, so rows may be ragged. A model that cannot share keys and values (`sharing` finds
out) gets whole rows instead, as transformers would run them. Shapes: B rows, T new tokens, W cached and new columns,
P prefix tokens, D hidden size, V vocabulary.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.checkpoint import checkpoint
from transformers.cache_utils import Cache

from llamagym_tui.config import Precision
from llamagym_tui.engine.model.caches import RaggedCache, prefix_cache, recording_cache
from llamagym_tui.engine.model.lean import next_states, read_states
from llamagym_tui.engine.model.precision import Products
from llamagym_tui.engine.ranks import Ranks
from llamagym_tui.engine.tokens.flat_tree import flat_tree
from llamagym_tui.engine.tokens.token_tree import TokenTree, TreeRows, of_similar_size, tree_rows
from llamagym_tui.errors import ModelLoadError

if TYPE_CHECKING:
    from llamagym_tui.engine.model.shards import Shards

Mask = Tensor | dict[str, Tensor]
"""What is added to attention scores, 0 or a large negative number; by kind of layer where a model has several."""
SLIDING = "sliding_attention"
TOKENS_APART = 512
"""Of one forward of whole rows at most (one row may have more): recurrent models keep much of each token."""


class Encoded:
    """Hidden states of a forward, from which logits are computed only where they are needed."""

    def __init__(self, head: nn.Module, hidden: Tensor, *logits: Tensor) -> None:
        """`hidden`, (B, T, D) after the final norm, is what the head reads; with `logits` it need not be."""
        self.hidden = hidden
        self._head, self._all = head, (hidden, *logits)

    def logits_at(self, rows: Tensor, columns: Tensor) -> Tensor:
        """(N, V) logits at N positions, in fp32."""
        found = self._all[-1][rows, columns]
        return (found if len(self._all) > 1 else self._head(found)).float()

    def picked(self, rows: Tensor | slice, columns: Tensor | slice) -> Encoded:
        """(R, C) of the positions, as a forward of its own; rows and columns broadcast to (R, C)."""
        return Encoded(self._head, *(each[rows, columns] for each in self._all))

    @property
    def bytes(self) -> int:
        return sum(each.nbytes for each in self._all)

    def rows(self) -> list[Encoded]:
        """Each row by itself, without its dimension."""
        return [
            Encoded(self._head, *row)
            for row in zip(*(each.unbind() for each in self._all), strict=True)
        ]

    @staticmethod
    def stacked(rows: Sequence[Encoded]) -> Encoded:
        """What `rows` took apart, in as many columns as the widest has."""
        every = zip(*(row._all for row in rows), strict=True)
        return Encoded(
            rows[0]._head, *(pad_sequence(list(each), batch_first=True) for each in every)
        )

    @staticmethod
    def joined(parts: Sequence[Encoded], order: Tensor) -> Encoded:
        """Rows of several forwards of one width as one; `order` indexes the rows of all."""
        every = zip(*(part._all for part in parts), strict=True)
        return Encoded(parts[0]._head, *(torch.cat(each)[order] for each in every))


class Backbone:
    def __init__(
        self, causal_lm: Any, precision: Precision = "fp32", *, shares: bool = True
    ) -> None:
        """Wrap a `PreTrainedModel` with an LM head (for PEFT: the base model with its adapters in place).

        It `shares` keys and values among conversations, or else computes each of them whole.
        """
        self.lm = causal_lm
        self.precision: Precision = precision
        self.shares = shares
        self.flat_is_exact = False
        """Whether the lean path gives the model's own gradients; `sharing` finds out."""
        self.decoder: Any = causal_lm.get_decoder()
        is_new = "cache" in inspect.signature(self.decoder.forward).parameters  # transformers 5.24
        self._cache_name = "cache" if is_new else "past_key_values"
        if precision == "bf16" and causal_lm.device.type == "cuda":
            torch.set_float32_matmul_precision("high")  # TF32, in what bf16 leaves
        self.head: nn.Module = causal_lm.get_output_embeddings()
        self.products = Products(causal_lm, self.head.weight)
        self.layers: int = causal_lm.config.get_text_config().num_hidden_layers
        self._window, self._kinds = _sliding_window(causal_lm.config.get_text_config())
        self.is_split = self._head_alone_gives_the_logits()
        self.shards: Shards | None = None
        """None: the weights are whole."""

    def unrecorded(self) -> AbstractContextManager[object]:
        """For forwards without gradients; shards cannot be gathered in inference mode."""
        return torch.no_grad() if self.shards else torch.inference_mode()

    def shard(self, ranks: Ranks) -> None:
        """Keep this rank's part of the weights; from now on each forward is one of the whole model, by all ranks.

        Raises:
            ModelLoadError: its forwards are not of one kind, it has no list of layers, or gloo cannot reach it.
        """
        from llamagym_tui.engine.model.shards import (
            Shards,
        )  # torch.distributed's part for that is slow to import

        if not (self.shares and hasattr(self.decoder, "layers") and self.device.type == "cpu"):
            raise ModelLoadError(
                "Shards need a Llama-like model on a processor: add --device cpu, or leave out shard."
            )
        self.is_split = self.flat_is_exact = False
        self.shards = Shards(self.lm, ranks)

    @property
    def device(self) -> torch.device:
        return self.head.weight.device  # type: ignore[return-value]

    @property
    def is_lean(self) -> bool:
        """Whether trees of which little is read are computed flat, and a shared prefix is read once while decoding."""
        return self.shares and self.flat_is_exact

    @property
    def vocabulary(self) -> int:
        """V, which may be larger than the tokenizer's."""
        return int(self.head.weight.shape[0])  # type: ignore[index]

    @property
    def dtype(self) -> torch.dtype:
        return self.head.weight.dtype  # type: ignore[return-value]

    def encode(
        self, ids: Tensor, positions: Tensor, mask: Mask, cache: Cache | None = None
    ) -> Encoded:
        """One forward of (B, T) ids at their positions; what is new is added to the cache."""
        uses = {self._cache_name: cache, "use_cache": cache is not None}
        return self._forward(input_ids=ids, position_ids=positions, attention_mask=mask, **uses)

    def _forward(self, **arguments: Any) -> Encoded:
        if self.shards:
            self.shards.meet_forward()
        with self.products.at(self.precision):
            if self.is_split:
                return Encoded(self.head, self.decoder(**arguments).last_hidden_state)
            output = self.lm(**arguments, output_hidden_states=True)
        return Encoded(self.head, output.hidden_states[-1], output.logits)

    def encode_next(
        self, ids: Tensor, columns: Tensor, width: int, cache: RaggedCache, prefix: Cache | None
    ) -> Encoded:
        """One id (B,) more, in (B, 1) columns of the first rows; (B, 1) columns.

        A prefix is recorded, and all these rows begin with it; None: they share none.
        """
        cache.aim(columns, width)
        if prefix is not None and self.is_lean:
            with self.products.at(self.precision):
                return Encoded(self.head, next_states(self.decoder, ids, cache, prefix))
        return self.encode(ids[:, None], columns, self.causal_mask(columns, width), cache)

    def encode_rows(self, prefix: Sequence[int], rows: Sequence[Sequence[int]]) -> Encoded:
        """Rows after a common prefix, which is computed once; columns count from its end, padding is on the right."""
        return self.encode_trees(
            prefix, tree_rows([TokenTree.of(row) for row in rows], self.device)
        )

    def encode_trees(
        self, prefix: Sequence[int], trees: TreeRows, read: Tensor | None = None
    ) -> Encoded:
        """Trees after a shared prefix, which is computed once with gradients from all; columns count from its end.

        Of (R, C) columns that are `read`, others may be missing.
        """
        if self.is_lean and read is not None:
            return self.encode_flat(prefix, trees, read)
        if not self.shares:
            return self.encode_apart([prefix] * len(trees.trees), trees.trees).picked(
                slice(None), slice(1, None)
            )
        if self.shards and prefix:  # in one forward, so that the other ranks know of one backward
            whole = tree_rows([tree.after(prefix) for tree in trees.trees], self.device)
            return self.encode_trees((), whole).picked(slice(None), slice(len(prefix), None))
        cache = prefix_cache(self.record(prefix), len(trees.ids)) if prefix else None
        positions = trees.depths + len(prefix)
        visible = F.pad(trees.visible, (len(prefix), 0), value=True)
        columns = torch.arange(len(prefix), device=self.device).expand(len(trees.ids), -1)
        mask = self.mask(visible, positions, torch.cat([columns, positions], dim=-1))
        return self.encode(trees.ids, positions, mask, cache)

    def encode_flat(self, prefix: Sequence[int], trees: TreeRows, read: Tensor) -> Encoded:
        """Trees of a Llama-like model, without padding; columns that are not read are 0."""
        flat = flat_tree(prefix, trees.trees, *read.numpy().nonzero())
        with self.products.at(self.precision):
            states = read_states(self.decoder, flat)
        hidden = states.new_zeros(*read.shape, states.shape[-1]).index_put(
            (flat.rows, flat.columns), states
        )
        return Encoded(self.head, hidden)

    def encode_apart(
        self, contexts: Sequence[Sequence[int]], trees: Sequence[TokenTree]
    ) -> Encoded:
        """B trees behind contexts of their own, every path computed whole; columns: the context's last token, nodes."""
        rows: dict[tuple[int, ...], int] = {}
        width = 1 + max(map(len, trees))
        places = [[(0, 0)] * width for _ in trees]
        for found, context, tree in zip(places, contexts, trees, strict=True):
            for path in tree.paths():
                row = rows.setdefault((*context, *(tree.ids[column] for column in path)), len(rows))
                for at, column in enumerate((-1, *path)):
                    found[column + 1] = (row, max(len(context) - 1 + at, 0))
        parts, order = list[Encoded](), dict[tuple[int, int], int]()
        for group in of_similar_size(rows, len, TOKENS_APART):
            index = {rows[ids]: at for at, ids in enumerate(group)}
            here = sorted({place for found in places for place in found if place[0] in index})
            order |= {place: len(order) + at for at, place in enumerate(here)}
            at, columns = torch.tensor(
                [(index[row], column) for row, column in here], device=self.device
            ).T
            parts.append(self._picked_apart(group, at, columns))
        indices = torch.tensor(
            [[order[place] for place in found] for found in places], device=self.device
        )
        return Encoded.joined(parts, indices)

    def _picked_apart(
        self, rows: Sequence[tuple[int, ...]], at: Tensor, columns: Tensor
    ) -> Encoded:
        """Some positions of whole rows; what their gradient needs is computed again when it goes back."""

        def picked() -> Encoded:
            return self.encode_whole(rows).picked(at, columns)

        return checkpoint(picked, use_reentrant=False) if torch.is_grad_enabled() else picked()

    def encode_whole(self, rows: Sequence[Sequence[int]]) -> Encoded:
        """Rows with padding on the right, which nothing causal sees, in the model's own way."""
        ids = pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
        return self._forward(input_ids=ids.to(self.device), use_cache=False)

    def record(self, prefix: Sequence[int]) -> Cache:
        """Keys and values of a prefix, (1, H, P, D) in each layer."""
        cache = recording_cache()
        positions = torch.arange(len(prefix), device=self.device)[None]
        ids = torch.tensor([list(prefix)], device=self.device)
        self.encode(ids, positions, self.causal_mask(positions, len(prefix)), cache)
        return cache

    def causal_mask(self, positions: Tensor, width: int) -> Mask:
        """(B, 1, T, W) additive mask under which a token sees the columns up to its own position."""
        columns = torch.arange(width, device=self.device)[None]
        return self.mask(columns[:, None, :] <= positions[:, :, None], positions, columns)

    def mask(self, visible: Tensor, positions: Tensor, columns: Tensor) -> Mask:
        """(B, 1, T, W) additive mask; layers with a sliding window see no further back than that.

        A model that mixes kinds of layers gets a mask for each kind, by name.

        Args:
            visible: (B, T, W) bool: which columns each token may see.
            positions: (B, T) position of each token.
            columns: (B, W) position of each column.
        """
        if self._window is None:
            return self._additive(visible)
        near = columns[:, None, :] > positions[:, :, None] - self._window
        slid = self._additive(visible & near)
        if not self._kinds:
            return slid
        return {kind: slid if kind == SLIDING else self._additive(visible) for kind in self._kinds}

    def _additive(self, visible: Tensor) -> Tensor:
        lowest = torch.finfo(self.dtype).min
        mask = torch.zeros(visible.shape, dtype=self.dtype, device=self.device)
        return mask.masked_fill_(~visible, lowest)[:, None]

    @torch.no_grad()
    def _head_alone_gives_the_logits(self) -> bool:
        ids = torch.tensor([[0, 1, 2]], device=self.device)
        own = self.lm(input_ids=ids, use_cache=False).logits
        try:
            apart = self.head(self.decoder(input_ids=ids, use_cache=False).last_hidden_state)
        except Exception:  # what some call their decoder is another part of them
            return False
        return own.shape == apart.shape and torch.allclose(
            own.float(), apart.float(), rtol=1e-4, atol=1e-4
        )


def _sliding_window(config: Any) -> tuple[int | None, frozenset[str]]:
    """Positions that sliding layers see (None: there are no such layers), and the kinds of layers by name, if named."""
    kinds = frozenset(getattr(config, "layer_types", None) or ())
    window = getattr(config, "sliding_window", None)
    if not window or (kinds and SLIDING not in kinds):
        return None, kinds
    return int(window), kinds
