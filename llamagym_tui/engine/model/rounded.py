"""Reading in bfloat16, rounding only what differs between prompts.

Products of bfloat16 are several times as fast as those of float32 where a processor has them. But what enters a product
is nearly the same vector for all prompts, and rounding it hides what differs: after 12 layers of SmolLM2 the error is
as large as the spread between states of Cart Pole. So each product is computed in two parts, W x = W c + W (x - c). The
centre c is the mean of what entered at the same two tokens, this one and the one before it. W c is computed once in
float32, and only the difference and W are rounded (docs/adr/0024-rounded-reading.md).

A tree with a pair of tokens that was never read before is read in float32, and its centres are kept from then on.
Notation: N tokens of a tree, M of them read in the end, R pairs, I and O numbers that enter and leave a product.
"""

from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from llamagym_tui.engine.model.lean import read_states
from llamagym_tui.engine.tokens.flat_tree import FlatTree

MOST_BYTES = 256 * 2**20
"""Bytes of all centres and their products, at most."""
Pair = tuple[int, int, bool]
"""A token, the one before it, and True if its state is read in the end."""


class _Tokens:
    """The pairs of the tree that is being read."""

    rows: Tensor
    """(N,) row of each token's pair."""
    read: Tensor
    """(M,) the same of the tokens that are read, which alone pass the last layer."""
    are_new = False
    """True if a pair has no centres yet."""
    count = 0
    """R, with the new pairs."""

    def rows_of(self, inputs: Tensor) -> Tensor:
        """The rows of what enters a product: of all tokens, or of those that are read."""
        return self.rows if len(inputs) == len(self.rows) else self.read


class _Centres:
    """(R, I) the mean input of each pair, for products that have the same input."""

    def __init__(self, tokens: _Tokens, size: int) -> None:
        self.tokens = tokens
        self.means = torch.zeros(0, size)
        self._inputs: Tensor | None = None
        """What entered last: the next product may have it too."""
        self._rounded: Tensor
        """Its differences from the centres."""

    def learn(self, inputs: Tensor) -> None:
        """Keep the centres of new pairs."""
        known = len(self.means)
        if known == self.tokens.count:
            return
        rows = self.tokens.rows_of(inputs)
        sums = inputs.new_zeros(self.tokens.count, inputs.shape[-1]).index_add_(0, rows, inputs)
        times = torch.bincount(rows, minlength=self.tokens.count).clamp(min=1)
        self.means = torch.cat([self.means, sums[known:] / times[known:, None]])

    def differences(self, inputs: Tensor) -> Tensor:
        """(N, I) inputs less their centres, in bfloat16."""
        if inputs is not self._inputs:
            self._inputs = inputs
            self._rounded = torch.empty(inputs.shape, dtype=torch.bfloat16)
            centres = self.means.index_select(0, self.tokens.rows_of(inputs))
            torch.sub(inputs, centres, out=self._rounded)
        return self._rounded


class _Product:
    """A linear module, in bfloat16 about the centres of its inputs."""

    def __init__(self, module: nn.Linear, centres: _Centres) -> None:
        self._module = module
        self._centres = centres
        self._weight = module.weight.detach().bfloat16()
        self._of_centres = torch.zeros(0, module.out_features)
        """(R, O) products of the centres, in float32."""

    def __call__(self, inputs: Tensor) -> Tensor:
        """(N, O) from (N, I)."""
        centres = self._centres
        if centres.tokens.are_new:
            centres.learn(inputs)
            new = self._module(centres.means[len(self._of_centres) :])
            self._of_centres = torch.cat([self._of_centres, new])
            return self._module(inputs)
        found = self._of_centres.index_select(0, centres.tokens.rows_of(inputs))
        return found.add_(F.linear(centres.differences(inputs), self._weight))


class Rounded:
    """The trunk of a Llama-like model in float32 on a processor, read in bfloat16."""

    def __init__(self, decoder: Any) -> None:
        """`decoder` is the trunk, which stays as it is."""
        self._exact = decoder
        self._tokens = _Tokens()
        self._row_of: dict[Pair, int] = {}
        self._numbers = 0
        """Numbers that are kept of a pair."""
        self._rounded = SimpleNamespace(
            embed_tokens=decoder.embed_tokens,
            rotary_emb=decoder.rotary_emb,
            norm=decoder.norm,
            layers=[self._layer(layer) for layer in decoder.layers],
        )
        """The trunk as `read_states` calls it, with other products."""

    @torch.no_grad()
    def read(self, flat: FlatTree) -> Tensor:
        """(M, D) hidden states, as of `read_states`."""
        is_read = torch.zeros(len(flat.ids), dtype=torch.bool)
        is_read[flat.read] = True
        columns = (flat.ids, flat.before, is_read)
        pairs: list[Pair] = list(zip(*map(Tensor.tolist, columns), strict=True))
        new = [pair for pair in dict.fromkeys(pairs) if pair not in self._row_of]
        if new and (len(self._row_of) + len(new)) * self._numbers * 4 > MOST_BYTES:
            return read_states(self._exact, flat)
        for pair in new:
            self._row_of[pair] = len(self._row_of)
        tokens = self._tokens
        tokens.rows = torch.tensor([self._row_of[pair] for pair in pairs])
        tokens.read = tokens.rows[flat.read]
        tokens.are_new = bool(new)
        tokens.count = len(self._row_of)
        return read_states(self._rounded, flat)

    def _layer(self, layer: Any) -> Any:
        """A layer with the same norms."""
        own = layer.self_attn
        # Not those of keys and values: in the last layer only the tokens that are read ask.
        (query,) = self._products(own.q_proj)
        key, value = self._products(own.k_proj, own.v_proj)
        (output,) = self._products(own.o_proj)
        gate, up = self._products(layer.mlp.gate_proj, layer.mlp.up_proj)
        (down,) = self._products(layer.mlp.down_proj)
        attention = SimpleNamespace(
            q_proj=query,
            k_proj=key,
            v_proj=value,
            o_proj=output,
            head_dim=own.head_dim,
            scaling=own.scaling,
        )
        if hasattr(own, "q_norm"):
            attention.q_norm = own.q_norm
            attention.k_norm = own.k_norm

        def feed_forward(inputs: Tensor) -> Tensor:
            return down(layer.mlp.act_fn(gate(inputs)) * up(inputs))

        return SimpleNamespace(
            input_layernorm=layer.input_layernorm,
            post_attention_layernorm=layer.post_attention_layernorm,
            self_attn=attention,
            mlp=feed_forward,
        )

    def _products(self, *modules: nn.Linear) -> list[_Product]:
        """Products that have the same input."""
        size = modules[0].in_features
        self._numbers += size + sum(module.out_features for module in modules)
        centres = _Centres(self._tokens, size)
        return [_Product(module, centres) for module in modules]
