"""A causal LM with two forwards: a flat tree for the Llama family, and whole rows, as transformers computes them.

Both take a tree of tokens and give the hidden state at each of its nodes; logits are computed only where they are
needed. Loading compares the flat forward with transformers' once, and takes whole rows where they differ.

Shapes: B rows, T tokens, C columns of a tree, D hidden size, V vocabulary, S places of logits, N scored tokens.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteriaList,
)

from llamagym_tui.engine.model.lean import is_llama_like, read_states, states_of_layers
from llamagym_tui.engine.model.rounded import Rounded
from llamagym_tui.engine.model.shape import context_of
from llamagym_tui.engine.tokens.flat_tree import flat_tree
from llamagym_tui.engine.tokens.token_tree import ForwardLimits, TokenTree, grouped
from llamagym_tui.engine.tokens.tokenization import Opening

FORWARD_TOKENS = 1024
"""Tokens of a forward over prompts."""
TRIAL_TOKENS = 48
"""Tokens on which a loaded model is tried."""
TOLERANCE = 2e-3
"""Largest difference of a log-probability that counts as rounding in float32, in nats."""
COARSE_TOLERANCE = 0.5
"""The same with weights of fewer bits."""
LOGITS_AT_ONCE = 2**22
"""Numbers in the logits that are normalized at most, in one piece."""

log = logging.getLogger(__name__)

Scorer = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Takes (N,) places and (N,) tokens; gives the (N,) log-probabilities and the (S,) entropies in nats."""
Choose = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Takes (B, V) logits; gives the (B,) next tokens and, as (B,) bool, which rows are done."""


class Encoded:
    """Hidden states of a forward.

    The logits of all positions would be the largest tensor of an update, and few positions are decisions. So logits are
    computed where they are needed.
    """

    def __init__(self, head: nn.Module, hidden: Tensor, *logits: Tensor) -> None:
        """States for the LM head to read.

        Args:
            head: turns hidden states into logits.
            hidden: (B, T, D) after the final norm.
            logits: one tensor (B, T, V) where the model scales or caps its logits, else none.
        """
        self.hidden = hidden
        self._head = head
        self._tensors = (hidden, *logits)
        """All tensors of each position; `logits_at` looks at the last."""

    def logits_at(self, rows: Tensor, columns: Tensor) -> Tensor:
        """(N, V) logits at N positions, in fp32."""
        found = self._tensors[-1][rows, columns]
        has_logits = len(self._tensors) > 1
        logits = found if has_logits else self._head(found)
        return logits.float()

    def scorer_at(self, rows: Tensor, columns: Tensor, temperature: float) -> Scorer:
        """Scores tokens at S positions, with gradient. It can be called once: it overwrites the logits."""
        logits = self.logits_at(rows, columns)
        return lambda places, ids: scored(logits, places, ids, temperature)

    def picked(self, rows: Tensor | slice, columns: Tensor | slice) -> Encoded:
        """(R, C) of the positions; rows and columns broadcast to (R, C)."""
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
        """Rows of one width, put together again."""
        of_each_kind = zip(*(row._tensors for row in rows), strict=True)
        return type(rows[0])(rows[0]._head, *(torch.stack(each) for each in of_each_kind))


class Backbone:
    """A `PreTrainedModel` with an LM head; a PEFT model comes as its base model with the adapter in place."""

    def __init__(self, causal_lm: Any) -> None:
        """Find out how the model is called.

        Raises:
            ValueError: its predictions depend on later tokens, or are not finite.
        """
        self.lm = causal_lm
        self.decoder: Any = causal_lm.get_decoder()
        """The trunk: everything but the LM head."""
        self.head: nn.Module = causal_lm.get_output_embeddings()
        self.is_split = self._head_alone_gives_the_logits()
        """True if trunk and head can be called apart."""
        self.is_lean = False
        """True if forwards are of flat trees."""
        self.rounded: Rounded | None = None
        """Reads flat trees in bfloat16. None: they are read in the weights' own type."""
        # An adapter on the head would magnify rounding, and is computed in the same way in all forwards.
        whole = self.head
        self.head = getattr(whole, "base_layer", whole)
        self._try_out()
        self.head = whole

    @property
    def device(self) -> torch.device:
        return self.head.weight.device  # type: ignore[return-value]

    @property
    def vocabulary(self) -> int:
        """V, which may be larger than the tokenizer's."""
        return int(self.head.weight.shape[0])  # type: ignore[index]

    @property
    def dtype(self) -> torch.dtype:
        return self.head.weight.dtype  # type: ignore[return-value]

    def encode_tree(self, tree: TokenTree, read: Sequence[int]) -> Encoded:
        """(1, C) states of a tree's columns; those that are not in `read` may be 0."""
        if not self.is_lean:
            paths = tree.paths()
            places = [(0, 0)] * len(tree)
            for row, path in enumerate(paths):
                for at, column in enumerate(path):
                    places[column] = (row, at)
            rows, columns = torch.tensor(places, device=self.device).T
            encoded = self.encode_rows([[tree.ids[column] for column in path] for path in paths])
            return encoded.picked(rows[None], columns[None])
        flat = flat_tree(tree, sorted(set(read)), self.device)
        rounded = self.rounded
        states = (
            read_states(self.decoder, flat) if rounded is None else rounded.read(flat)
        )  # (M, D)
        hidden = states.new_zeros(len(tree), states.shape[-1]).index_copy(0, flat.columns, states)
        return Encoded(self.head, hidden[None])

    @torch.no_grad()
    def last_states(
        self,
        prompts: Sequence[Opening],
        layers: Sequence[int] = (),
        on_reading: Callable[[int, int], None] = lambda done, total: None,
    ) -> Tensor:
        """(L, P, D) states at the last token of P prompts after each of L numbers of layers, in fp32 on the CPU.

        Args:
            prompts: all ids of each.
            layers: ascending, where forwards are of flat trees. None given: all layers, so that L is 1.
            on_reading: called with the prompts that have been read, and all of them.
        """
        limits = ForwardLimits(FORWARD_TOKENS, flat=self.is_lean)
        ordered = sorted(range(len(prompts)), key=lambda index: prompts[index])
        found: dict[int, Tensor] = {}

        def insert(tree: TokenTree, index: int) -> int:
            return tree.insert([*prompts[index].prefix, *prompts[index].rest])[-1]

        on_reading(0, len(prompts))
        for tree, members in grouped(ordered, insert, limits):
            columns = [column for _, column in members]
            if layers:
                flat = flat_tree(tree, sorted(set(columns)), self.device)
                states = states_of_layers(self.decoder, flat, layers)
                shape = (len(layers), len(tree), states.shape[-1])
                hidden = states.new_zeros(shape).index_copy(1, flat.columns, states)
            else:
                hidden = self.encode_tree(tree, columns).hidden
            for index, column in members:
                found[index] = hidden[:, column].float().cpu()
            on_reading(len(found), len(prompts))
        return torch.stack([found[index] for index in range(len(prompts))], dim=1)

    def encode_rows(self, rows: Sequence[Sequence[int]]) -> Encoded:
        """Rows as transformers computes them, padded on the right, where nothing causal looks."""
        ids = pad_sequence([torch.tensor(row) for row in rows], batch_first=True).to(self.device)
        if self.is_split:
            states = self.decoder(input_ids=ids, use_cache=False).last_hidden_state
            return Encoded(self.head, states)
        output = self.lm(input_ids=ids, use_cache=False, output_hidden_states=True)
        return Encoded(self.head, output.hidden_states[-1], output.logits)

    def continue_rows(self, rows: Sequence[Sequence[int]], choose: Choose, most: int) -> None:
        """Continue rows token by token with transformers' own cache, until all are done or have `most` more.

        Rows of different lengths are padded on the left, which models of other families than Llama's may see: these
        get rows of one length.
        """
        width = max(map(len, rows))
        filler = [0] * width
        ids = torch.tensor([[*filler[len(row) :], *row] for row in rows], device=self.device)
        lengths = torch.tensor([len(row) for row in rows], device=self.device)
        is_padding = torch.arange(width, device=self.device) < width - lengths[:, None]
        chooser = _Chooser(choose)
        own = self.lm.generation_config
        # The model's own settings, as a penalty on repetition, would change the distribution.
        self.lm.generation_config = GenerationConfig()
        try:
            self.lm.generate(
                input_ids=ids,
                attention_mask=(~is_padding).long(),
                generation_config=GenerationConfig(max_new_tokens=most, pad_token_id=0),
                logits_processor=LogitsProcessorList([chooser]),
                stopping_criteria=StoppingCriteriaList([chooser.are_done]),
            )
        finally:
            self.lm.generation_config = own

    @torch.no_grad()
    def _head_alone_gives_the_logits(self) -> bool:
        ids = torch.tensor([[0, 1, 2]], device=self.device)
        own = self.lm(input_ids=ids, use_cache=False).logits
        try:
            apart = self.head(self.decoder(input_ids=ids, use_cache=False).last_hidden_state)
        except Exception:  # some models call another part of them their decoder
            return False
        return own.shape == apart.shape and torch.allclose(
            own.float(), apart.float(), rtol=1e-4, atol=1e-4
        )

    @torch.no_grad()
    def _try_out(self) -> None:
        """Compare two rows that begin alike with each other, and with the flat forward of their tree."""
        is_exact = self.dtype == torch.float32 and not getattr(self.lm, "is_quantized", False)
        tolerance = TOLERANCE if is_exact else COARSE_TOLERANCE
        length = min(TRIAL_TOKENS, context_of(self.lm.config) or TRIAL_TOKENS)
        ids = [(7 * at * at + 3 * at + 1) % self.vocabulary for at in range(length)]
        half = length // 2
        other = [*ids[:half], *ids[: half - 1 : -1]]
        encoded = self.encode_rows([ids, other])
        if encoded.hidden.shape[:-1] != (2, length):
            raise ValueError("it has no hidden state of each token that a value head could read")
        own = torch.stack([_logprobs(encoded, row, range(length)) for row in (0, 1)])
        if not own.isfinite().all():
            raise ValueError("its predictions are not finite numbers, so its weights are broken")
        if (own[0, :half] - own[1, :half]).abs().max() > tolerance:
            raise ValueError("what it predicts depends on tokens to come")
        if not (self.is_split and is_llama_like(self.lm.config)):
            return
        self.is_lean = True
        tree = TokenTree()
        paths = [tree.insert(ids), tree.insert(other)]
        flat = self.encode_tree(tree, range(len(tree)))
        ours = torch.stack([_logprobs(flat, 0, path) for path in paths])
        difference = float((ours - own).abs().max().nan_to_num(float("inf")))
        if difference > tolerance:
            self.is_lean = False
            log.warning("The flat forward is off by %.2g nats: whole rows are computed", difference)


class _Chooser(LogitsProcessor):
    """Lets `generate` take the tokens that are chosen outside."""

    def __init__(self, choose: Choose) -> None:
        self._choose = choose
        self._done: Tensor

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        tokens, self._done = self._choose(scores)
        return torch.full_like(scores, float("-inf")).scatter(1, tokens[:, None], 0.0)

    def are_done(self, input_ids: Any, scores: Any, **_: Any) -> Tensor:
        return self._done


def _logprobs(encoded: Encoded, row: int, columns: Sequence[int]) -> Tensor:
    """(C, V) at some columns of a row."""
    at = torch.tensor(columns, device=encoded.hidden.device)
    return encoded.logits_at(torch.full_like(at, row), at).log_softmax(-1)


def scored(
    logits: Tensor, places: Tensor, ids: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """(N,) log-probability of each token at its place, and (S,) entropies, the latter without gradient.

    Args:
        logits: (S, V), which are overwritten.
        places: (N,) place of each token.
        ids: (N,) of the tokens.
        temperature: divides the logits.
    """
    logprobs, entropies = _Scored.apply(logits, places, ids, temperature)
    return logprobs, entropies


def entropy(logprobs: Tensor) -> Tensor:
    """(N,) nats of N distributions given as (N, V) log-probabilities, which may be -inf."""
    # 0 times minus infinity would be no number; with the lowest number for it, gradients would overflow.
    return -(logprobs.exp() * logprobs.clamp(min=-1e4)).sum(-1)


class _Scored(torch.autograd.Function):
    """(N,) log-probabilities of tokens, and (S,) entropies, in the memory of the logits.

    The result is `logits.log_softmax(-1)[places, ids]`, with the same gradient. But that would hold logits,
    log-probabilities and the gradients of both, the largest tensors of an update. Here the log-probabilities are
    written over the logits, and the gradient over these.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, places: Tensor, ids: Tensor, temperature: float
    ) -> tuple[Tensor, Tensor]:
        entropies = []
        for piece in logits.split(
            max(1, LOGITS_AT_ONCE // logits.shape[-1])
        ):  # views of the logits
            logprobs = piece.div_(temperature).log_softmax(-1)
            entropies.append(entropy(piece.copy_(logprobs)))
        entropy_of_places = torch.cat(entropies)
        ctx.save_for_backward(logits, places, ids)
        ctx.temperature = temperature
        ctx.mark_non_differentiable(entropy_of_places)
        return logits[places, ids], entropy_of_places

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        # With p the softmax of a place, d log p[token] / d logit[v] is (1 if v is the token else 0) - p[v].
        logprobs, places, ids = ctx.saved_tensors
        own = gradients[0] / ctx.temperature  # (N,)
        of_places = own.new_zeros(len(logprobs)).index_add_(0, places, own)  # (S,)
        gradient = logprobs.exp_().mul_(
            -of_places[:, None]
        )  # (S, V): the part with p, for all tokens of a place
        gradient.index_put_((places, ids), own, accumulate=True)  # and the 1 for each token
        return gradient, None, None, None
