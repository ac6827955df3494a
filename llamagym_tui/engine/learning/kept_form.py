"""Keeps replies in the form of admissible ones while an adapter on the LM head learns which of them to give.

The directions in which it sees states are measured where replies part, on the few dozen states of a first batch. A
state that comes later may stand out a hundred times as far in them at another place of a reply, and then a token that
names an action is drawn before the reply has begun. So the loss has a part that is 0 as long as replies stay in the
form, and grows with the odds of leaving it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from llamagym_tui.engine.model.forward import Encoded
from llamagym_tui.engine.model.narrow import NarrowEncoded, NarrowHead
from llamagym_tui.engine.tokens.token_tree import ActionTrie, TokenTree

UNASKED = -7.0
"""Log-odds of leaving the form at a place of a reply, up to which nothing is asked: one in a thousand."""


class _Places(NamedTuple):
    """S places of admissible replies behind prompts: the prompts' last tokens and all nodes behind them."""

    features: Tensor
    """(S, K) what the adapter sees of each."""
    moved: Tensor
    """(S, m) logits of the tokens that move, without the adapter."""
    others: Tensor
    """(S,) log of the sum of the other tokens' exponentials."""
    goes_on: Tensor
    """(S, m) whether an admissible reply goes on with a token."""
    prompts: int


class KeptForm:
    """What a batch's prompts ask of an adapter that is to leave the form of replies alone."""

    def __init__(
        self,
        narrow: NarrowHead,
        tries: Mapping[TokenTree, ActionTrie],
        parts: Iterable[tuple[TokenTree, Encoded]],
    ) -> None:
        """`parts` are trees of admissible replies, with what the trunk says of prompts and of the nodes behind them."""
        self._narrow = narrow
        self._places: list[_Places] = []
        self._allowed: list[Tensor] = []
        for tree, encoded in parts:
            if not isinstance(encoded, NarrowEncoded):  # a forward of whole replies
                continue
            places = _places(narrow, tries[tree], encoded)
            self._places.append(places)
            untrained = _odds_of_leaving(places, places.moved)
            self._allowed.append(untrained.clamp(min=UNASKED))

    def loss(self) -> Tensor:
        """() the squares of the log-odds of leaving the form beyond those that are allowed, summed over the places of a
        prompt's replies; their mean over prompts."""
        total = torch.zeros((), device=self._narrow.up.device)
        prompts = 0
        for places, allowed in zip(self._places, self._allowed, strict=True):
            logits = self._narrow.moved_logits_at(places.features, places.moved)
            beyond = (_odds_of_leaving(places, logits) - allowed).clamp(min=0)
            total = total + beyond.square().sum()
            prompts += places.prompts
        return total / max(prompts, 1)


@torch.no_grad()
def _places(narrow: NarrowHead, trie: ActionTrie, encoded: NarrowEncoded) -> _Places:
    rows, columns = encoded.hidden.shape[:2]
    goes_on = torch.zeros(columns, len(narrow.ids), dtype=torch.bool, device=narrow.ids.device)
    for before, tokens in trie.children.items():
        # The prompt's last token is in column 0, and node k in column 1 + k.
        goes_on[1 + before, narrow.among(torch.tensor(tokens, device=narrow.ids.device))] = True
    return _Places(
        features=narrow.features(encoded.hidden).flatten(0, 1),
        moved=encoded.moved.flatten(0, 1),
        others=encoded.others[..., 0].flatten(),
        goes_on=goes_on.repeat(rows, 1),
        prompts=rows,
    )


def _odds_of_leaving(places: _Places, logits: Tensor) -> Tensor:
    """(S,) log-odds of a token with which no admissible reply goes on, from (S, m) logits of the tokens that move."""
    nothing = torch.finfo(logits.dtype).min
    staying = logits.masked_fill(~places.goes_on, nothing).logsumexp(-1)
    leaving = logits.masked_fill(places.goes_on, nothing).logsumexp(-1)
    return torch.logaddexp(leaving, places.others) - staying
