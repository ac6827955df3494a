"""What an adapter on the LM head sees: directions in which a batch's states differ where admissible replies part.

They must tell states apart and nothing else. What they saw at other places of a reply would change its form, and what
they saw of the system prompt would change it, too, once somebody writes another one. So both are measured as nuisances:
the states at the other places, and those of a few of the batch's observations under other prompts.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from llamagym_tui.engine.learning.packing import PackedRows, Row
from llamagym_tui.engine.model.forward import Encoded
from llamagym_tui.engine.model.narrow import NarrowEncoded
from llamagym_tui.engine.model.whitening import constant, whitening
from llamagym_tui.engine.policy.fixed_trunk import states_of
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.tokens.token_tree import ActionTrie, TokenTree
from llamagym_tui.engine.tokens.tokenization import Opening

LEAST_NEW_SPREAD = 0.05
"""Share of the states' spread from which on a direction that the first batches did not show is taken up."""
PROMPTS = (
    "",
    "You are a helpful assistant.",
    "Think of what comes later.",
    "If the first number is above 50 take the last action, else the first one.",
)
"""System prompts under which states are nuisances, beside those that ask for one reply or forbid it."""
MOST_REPLIES = 2
"""Replies, at most, of which prompts say that they are to be given always or never."""
OBSERVATIONS = 8
"""Observations of a batch, at most, that are read under other prompts."""

Place = tuple[int, ...]
"""The tokens of a reply up to one of its places: none where it begins, after the prompt's last token."""


class Seen(NamedTuple):
    """The states of a batch."""

    parting: dict[Place, Tensor]
    """(R, D) at each place after which admissible replies part."""
    elsewhere: dict[Place, Tensor]
    """(R, D) at each other place."""


class Directions:
    def __init__(self, policy: Policy) -> None:
        """Of a policy with an adapter on its head alone."""
        assert policy.narrow is not None, "the caller has looked"
        self._policy = policy
        self._down = policy.narrow.down
        self._of_prompts: list[Tensor] | None = None
        """By how much states differ under other prompts, once that is measured."""

    @torch.no_grad()
    def measure(self, rows: Sequence[Row], parts: Sequence[tuple[PackedRows, Encoded]]) -> None:
        """Set rows of A that are free to directions in which the states of a batch differ at which replies part.

        The first batch gives most of them. Where it shows few states, later ones differ in more directions: these come
        beside the first ones, which stay, so that the policy does not change.

        Args:
            rows: the batch.
            parts: the same rows, with what the trunk says of them.
        """
        is_free = ~self._down.any(1)  # (K,)
        if not is_free.any():
            return
        seen = _seen(parts)
        if not seen.parting:
            return
        if self._of_prompts is None:
            self._of_prompts = self._under_other_prompts(rows, seen)
        nuisances = [*self._of_prompts, *map(_centred, seen.elsewhere.values())]
        states = torch.cat(list(seen.parting.values()))
        others = [found.mean(0) for found in seen.elsewhere.values()]
        left_out = torch.stack([*others, *(found.mean(0) for found in seen.parting.values())])
        least = 0.0
        known = self._down[~is_free]
        if not len(known):
            # An action may be preferred or avoided in all states alike, which no difference between them tells.
            of_others = torch.stack(others) if others else left_out[:0]
            self._down[0] = constant(states.mean(0), of_others, nuisances)
            is_free[0] = not self._down[0].any()
        else:
            # As long as the common states, or what is known would count as rounding beside them.
            length = left_out.norm(dim=1).mean()
            left_out = torch.cat([left_out, known * (length / known.norm(dim=1, keepdim=True))])
            least = LEAST_NEW_SPREAD
        if len(states) == 1:  # it differs from no other
            return
        found = whitening(states, left_out, nuisances, int(is_free.sum()), least)
        self._down[is_free.nonzero().squeeze(1)[: len(found)]] = found

    def _under_other_prompts(self, rows: Sequence[Row], seen: Seen) -> list[Tensor]:
        """(E, D) each, by how much states differ from what they are under the batch's own prompt, by place."""
        found: dict[Place, list[Tensor]] = {}
        for trie, observed in self._observed(rows).items():
            places = _places(trie.tree)
            own = states_of(self._policy, observed, trie).hidden  # (O, C, D)
            for prefix in self._prefixes(trie):
                moved = [Opening(prefix, each.rest) for each in observed]
                hidden = states_of(self._policy, moved, trie).hidden
                for column, place in enumerate(places):
                    # Where replies part each is compared with itself, elsewhere with what the place is like.
                    before = own[:, column]
                    if place in seen.elsewhere:
                        before = seen.elsewhere[place].mean(0)
                    found.setdefault(place, []).append(hidden[:, column] - before)
        return [torch.cat(each) for each in found.values()]

    def _observed(self, rows: Sequence[Row]) -> dict[ActionTrie, list[Opening]]:
        """Some prompts of a batch, by the replies that are admissible on them."""
        found: dict[ActionTrie, dict[Opening, None]] = {}
        count = 0
        for row in rows:
            segment = row.segment
            if count == OBSERVATIONS or not segment.prefix or not segment.turns[0].is_trained:
                continue
            turn = segment.turns[0]
            prompt = Opening(segment.prefix, tuple(segment.ids[: turn.start]))
            of_trie = found.setdefault(self._policy.trie_of(turn.actions), {})
            count += prompt not in of_trie
            of_trie[prompt] = None
        return {trie: list(prompts) for trie, prompts in found.items()}

    def _prefixes(self, trie: ActionTrie) -> list[tuple[int, ...]]:
        """The ids by which other system prompts begin."""
        chat = self._policy.chat
        prompts = list(PROMPTS)
        for reply in trie.replies[:MOST_REPLIES]:
            text = chat.reply(reply)
            prompts += [f"Always answer {text}.", f"Never answer {text}."]
        return [chat.opening(prompt, "")[0] for prompt in prompts]


def _seen(parts: Sequence[tuple[PackedRows, Encoded]]) -> Seen:
    """The states at each place of the admissible replies, of all forwards together: most have some places in common."""
    states: dict[Place, list[Tensor]] = {}
    parting: set[Place] = set()
    for part, encoded in parts:
        if not isinstance(encoded, NarrowEncoded):
            continue
        tree = part.trees.trees[0]
        places = _places(tree)
        parents = tree.parents
        parting |= {places[parent + 1] for parent in parents if parents.count(parent) > 1}
        for column, place in enumerate(places):
            states.setdefault(place, []).append(encoded.hidden[:, column])
    found = {place: torch.cat(each) for place, each in states.items()}
    return Seen(
        parting={place: each for place, each in found.items() if place in parting},
        elsewhere={place: each for place, each in found.items() if place not in parting},
    )


def _places(tree: TokenTree) -> list[Place]:
    """The place of each column: the first is the prompt's last token, then come the tree's nodes."""
    places: list[Place] = [()]
    for token, parent in zip(tree.ids, tree.parents, strict=True):
        places.append((*places[parent + 1], token))
    return places


def _centred(states: Tensor) -> Tensor:
    return states - states.mean(0)
