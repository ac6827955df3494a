"""Running a causal LM where only some positions need logits.

`Backbone` calls the decoder and the LM head apart, after checking on the loaded model that this gives the model's own
logits; where it does not (scaled or capped logits), the whole model runs and positions are picked afterwards. So a
forward has two halves with a seam between them: the trunk gives hidden states of all positions, and `Encoded` takes
logits from them where they are asked for. Position ids and 4-D masks are always explicit, so rows may be ragged. A
model that cannot share keys and values (`sharing` finds out) gets whole rows instead, as transformers would run them.

Shapes: B rows, T new tokens, W cached and new columns, P prefix tokens, D hidden size, V vocabulary; R rows and C
columns of trees.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.checkpoint import checkpoint
from transformers.cache_utils import Cache

from llamagym_tui.engine.model.caches import RaggedCache, prefix_cache, recording_cache
from llamagym_tui.engine.model.lean import next_states, read_states
from llamagym_tui.engine.model.scores import scored
from llamagym_tui.engine.model.shape import first_length
from llamagym_tui.engine.tokens.flat_tree import flat_tree
from llamagym_tui.engine.tokens.token_tree import TokenTree, TreeRows, of_similar_size, tree_rows
from llamagym_tui.errors import PromptTooLongError

Mask = Tensor | dict[str, Tensor]
"""What is added to attention scores, 0 or a large negative number; by kind of layer where a model has several."""
SLIDING = "sliding_attention"
TOKENS_APART = 512
"""Tokens of one forward of whole rows at most (one row may have more): recurrent models keep much of each token."""


Scorer = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""From (N,) places and (N,) tokens to the (N,) log-probability of each at its place, and (S,) entropies in nats."""


class Encoded:
    """Hidden states of a forward, from which logits are computed only where they are needed.

    The logits of all positions would be the largest tensor of an update by far: V is many times D, and only a few
    positions of a conversation are the policy's own.
    """

    def __init__(self, head: nn.Module, hidden: Tensor, *logits: Tensor) -> None:
        """Hidden states that the LM head reads, or need not read where the model gave all logits itself.

        Args:
            head: turns hidden states into logits.
            hidden: (B, T, D) after the final norm.
            logits: one tensor (B, T, V), or none.
        """
        self.hidden = hidden
        self._head = head
        self._tensors = (hidden, *logits)
        """What there is of each position; the last of them is what `logits_at` looks at."""

    def logits_at(self, rows: Tensor, columns: Tensor) -> Tensor:
        """(N, V) logits at N positions, in fp32."""
        found = self._tensors[-1][rows, columns]
        has_logits = len(self._tensors) > 1
        logits = found if has_logits else self._head(found)
        return logits.float()

    def scorer_at(self, rows: Tensor, columns: Tensor, temperature: float) -> Scorer:
        """Scores tokens at S positions, with gradient; called once, as it takes the logits' memory."""
        logits = self.logits_at(rows, columns)
        return lambda places, ids: scored(logits, places, ids, temperature)

    def picked(self, rows: Tensor | slice, columns: Tensor | slice) -> Encoded:
        """(R, C) of the positions, as a forward of its own; rows and columns broadcast to (R, C)."""
        return type(self)(self._head, *(each[rows, columns] for each in self._tensors))

    @property
    def bytes(self) -> int:
        return sum(each.nbytes for each in self._tensors)

    def rows(self) -> list[Encoded]:
        """Each row by itself, without its dimension."""
        by_row = zip(*(each.unbind() for each in self._tensors), strict=True)
        return [type(self)(self._head, *row) for row in by_row]

    @staticmethod
    def stacked(rows: Sequence[Encoded]) -> Encoded:
        """What `rows` took apart, in as many columns as the widest has."""
        of_each_kind = zip(*(row._tensors for row in rows), strict=True)
        padded = [pad_sequence(list(each), batch_first=True) for each in of_each_kind]
        return type(rows[0])(rows[0]._head, *padded)

    @staticmethod
    def joined(parts: Sequence[Encoded], order: Tensor) -> Encoded:
        """Rows of several forwards of one width as one; `order` indexes the rows of all."""
        of_each_kind = zip(*(part._tensors for part in parts), strict=True)
        ordered = [torch.cat(each)[order] for each in of_each_kind]
        return type(parts[0])(parts[0]._head, *ordered)


class Backbone:
    def __init__(self, causal_lm: Any, *, shares: bool = True) -> None:
        """Wrap a `PreTrainedModel` with an LM head (for PEFT: the base model with its adapters in place).

        It `shares` keys and values among conversations, or else computes each of them whole.
        """
        self.lm = causal_lm
        self.shares = shares
        self.flat_is_exact = False
        """Whether the lean path gives the model's own gradients; `sharing` finds out."""
        self.decoder: Any = causal_lm.get_decoder()
        """The trunk: everything but the LM head."""
        is_new = "cache" in inspect.signature(self.decoder.forward).parameters  # transformers 5.24
        self._cache_name = "cache" if is_new else "past_key_values"
        self.head: nn.Module = causal_lm.get_output_embeddings()
        text_config = causal_lm.config.get_text_config()
        self.layers: int = text_config.num_hidden_layers
        self.first_length = first_length(causal_lm.config)
        """Tokens of a row beyond which all rows of a forward would have other positions. None: there is no such end."""
        window, kinds = _sliding_window(text_config)
        self._window = window
        self._kinds = kinds
        self.is_split = self._head_alone_gives_the_logits()
        """Whether trunk and head are called apart."""

    def unrecorded(self) -> AbstractContextManager[object]:
        """For forwards without gradients."""
        return torch.inference_mode()

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
        """One forward of (B, T) ids at their positions; what is new is added to the cache.

        Raises:
            PromptTooLongError: a row is longer than `first_length`.
        """
        if self.first_length is not None:
            self._require_first_length(int(positions.max()) + 1)
        arguments = {
            "input_ids": ids,
            "position_ids": positions,
            "attention_mask": mask,
            self._cache_name: cache,
            "use_cache": cache is not None,
        }
        return self._forward(arguments)

    def _require_first_length(self, tokens: int) -> None:
        if self.first_length is not None and tokens > self.first_length:
            raise PromptTooLongError(
                f"A conversation of {tokens:,} tokens is longer than the {self.first_length:,} for which the model has "
                "its first list of factors of positions (original_max_position_embeddings), and beyond them all others "
                "would be computed otherwise: shorten the prompts, or let them have fewer earlier turns (history)."
            )

    def _forward(self, arguments: dict[str, Any]) -> Encoded:
        """A forward of the model's own code, with what transformers' classes take by name."""
        if self.is_split:
            return self._from_states(self.decoder(**arguments).last_hidden_state)
        output = self.lm(**arguments, output_hidden_states=True)
        return Encoded(self.head, output.hidden_states[-1], output.logits)

    def _from_states(self, states: Tensor) -> Encoded:
        """The seam between trunk and head: (B, T, D) hidden states of the trunk, as what the head reads."""
        return Encoded(self.head, states)

    def encode_next(
        self, ids: Tensor, columns: Tensor, width: int, cache: RaggedCache, prefix: Cache | None
    ) -> Encoded:
        """One id (B,) more, in (B, 1) columns of the first rows; (B, 1) columns.

        A prefix is recorded, and all these rows begin with it; None: they share none.
        """
        cache.aim(columns, width)
        if prefix is not None and self.is_lean:
            return self._from_states(next_states(self.decoder, ids, cache, prefix))
        return self.encode(ids[:, None], columns, self.causal_mask(columns, width), cache)

    def encode_rows(self, prefix: Sequence[int], rows: Sequence[Sequence[int]]) -> Encoded:
        """Rows after a common prefix, which is computed once; columns count from its end, padding is on the right."""
        trees = [TokenTree.of(row) for row in rows]
        return self.encode_trees(prefix, tree_rows(trees, self.device))

    def encode_trees(
        self, prefix: Sequence[int], trees: TreeRows, read: Tensor | None = None
    ) -> Encoded:
        """Trees after a shared prefix, which is computed once with gradients from all; columns count from its end.

        Where (R, C) columns that are `read` are given, all others may be missing.
        """
        if self.is_lean and read is not None:
            return self.encode_flat(prefix, trees, read)
        every_row = slice(None)
        if not self.shares:
            apart = self.encode_apart([prefix] * len(trees.trees), trees.trees)
            return apart.picked(every_row, slice(1, None))  # without the prefix's last token
        cache = prefix_cache(self.record(prefix), len(trees.ids)) if prefix else None
        positions = trees.depths + len(prefix)  # (R, C)
        visible = F.pad(
            trees.visible, (len(prefix), 0), value=True
        )  # (R, C, P + C): all of the prefix
        columns = torch.arange(len(prefix), device=self.device).expand(len(trees.ids), -1)  # (R, P)
        mask = self.mask(visible, positions, torch.cat([columns, positions], dim=-1))
        return self.encode(trees.ids, positions, mask, cache)

    def encode_flat(self, prefix: Sequence[int], trees: TreeRows, read: Tensor) -> Encoded:
        """Trees of a Llama-like model, without padding; columns that are not read are 0."""
        rows, columns = read.numpy().nonzero()  # (M,) each
        flat = flat_tree(prefix, trees.trees, rows, columns)
        states = read_states(self.decoder, flat)  # (M, D)
        hidden = states.new_zeros(*read.shape, states.shape[-1])  # (R, C, D)
        return self._from_states(hidden.index_put((flat.rows, flat.columns), states))

    def encode_apart(
        self, contexts: Sequence[Sequence[int]], trees: Sequence[TokenTree]
    ) -> Encoded:
        """B trees behind contexts of their own, every path computed whole; columns: the context's last token, nodes."""
        # Paths that are equal, context included, are one row. Of each tree, `places` has the row and the position in it
        # where each of its columns is found; columns of a smaller tree are padding, and have the first place.
        rows: dict[tuple[int, ...], int] = {}
        width = 1 + max(map(len, trees))
        places = [[(0, 0)] * width for _ in trees]
        for found, context, tree in zip(places, contexts, trees, strict=True):
            for path in tree.paths():
                row = rows.setdefault((*context, *(tree.ids[column] for column in path)), len(rows))
                for at, column in enumerate((-1, *path)):
                    found[column + 1] = (row, max(len(context) - 1 + at, 0))

        # Rows of similar length run together. Of each forward only what some column needs is kept, end to end; `order`
        # has where in all of that each place is.
        parts: list[Encoded] = []
        order: dict[tuple[int, int], int] = {}
        for group in of_similar_size(rows, len, TOKENS_APART):
            index = {rows[ids]: at for at, ids in enumerate(group)}
            here = sorted({place for found in places for place in found if place[0] in index})
            order |= {place: len(order) + at for at, place in enumerate(here)}
            in_group = [(index[row], column) for row, column in here]
            at, columns = torch.tensor(in_group, device=self.device).T
            parts.append(self._picked_apart(group, at, columns))
        indices = [[order[place] for place in found] for found in places]  # (B, 1 + M)
        return Encoded.joined(parts, torch.tensor(indices, device=self.device))

    def _picked_apart(
        self, rows: Sequence[tuple[int, ...]], at: Tensor, columns: Tensor
    ) -> Encoded:
        """Some positions of whole rows; what their gradient needs is computed again when it goes back."""

        def picked() -> Encoded:
            return self.encode_whole(rows).picked(at, columns)

        if torch.is_grad_enabled():
            return checkpoint(picked, use_reentrant=False)
        return picked()

    def encode_whole(self, rows: Sequence[Sequence[int]]) -> Encoded:
        """Rows with padding on the right, which nothing causal sees, in the model's own way.

        Raises:
            PromptTooLongError: a row is longer than `first_length`.
        """
        self._require_first_length(max(map(len, rows)))
        ids = pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
        return self._forward({"input_ids": ids.to(self.device), "use_cache": False})

    def record(self, prefix: Sequence[int]) -> Cache:
        """Keys and values of a prefix, (1, K, P, E) in each layer: K heads of E numbers."""
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
        masks = {kind: self._additive(visible) for kind in self._kinds if kind != SLIDING}
        masks[SLIDING] = slid
        return masks

    def _additive(self, visible: Tensor) -> Tensor:
        lowest = torch.finfo(self.dtype).min
        mask = torch.zeros(visible.shape, dtype=self.dtype, device=self.device)
        return mask.masked_fill_(~visible, lowest)[:, None]

    @torch.no_grad()
    def _head_alone_gives_the_logits(self) -> bool:
        """Whether the head, called with the decoder's hidden states, gives the logits of the whole model."""
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
