"""Carries an adapter on the LM head from one system prompt to another.

Under another prompt all states stand elsewhere, so an adapter means nothing there. But what it has come to is a shift
of logits, by observation. The observations of the last batch are read under the new prompt, and an adapter there is
fitted to the same shifts. So a prompt that says nothing new is played as before. One that asks for something else is
followed, because the shifts are added to what the model says under it, and are bounded.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from llamagym_tui.engine.learning.directions import KEPT_BACK, Read, measure
from llamagym_tui.engine.learning.packing import Row
from llamagym_tui.engine.model.forward import Encoded
from llamagym_tui.engine.policy.policy import Policy, states_of
from llamagym_tui.engine.tokens.token_tree import ActionTrie
from llamagym_tui.engine.tokens.tokenization import Opening

MOST = 256
"""Observations that are read under another prompt, at most."""
MOST_MARGIN = 6.0
"""Nats by which one reply's shift may be ahead of another's, at most. A prompt that asks for a reply moves it by 5 to
11, so that what was learnt does not outweigh it."""
PENALTY = 1e-3
"""Of squared weights, where the features of whitened states are about 1."""


class Seen(NamedTuple):
    """An observation of a batch."""

    actions: tuple[str, ...] | None
    """Names of the actions that were admissible. None: all of the agent."""
    rest: tuple[int, ...]
    """The ids of its prompt behind those of the system prompt."""
    wording: int = 0
    """The number of its wording."""


class _Alike(NamedTuple):
    """Observations with the same admissible replies and wording, with what the trunk says of them."""

    trie: ActionTrie
    wording: int
    here: Encoded
    """Under the system prompt under which it has learnt."""
    there: Encoded
    """Under the other one."""


class Carried(NamedTuple):
    """An adapter on the head."""

    down: Tensor
    """(K, D) directions, A."""
    rows: Tensor
    """(m, K) rows of B, of the tokens of admissible replies."""


def seen_in(rows: Sequence[Row]) -> list[Seen]:
    """Distinct observations of a batch, `MOST` at most; none where the template gives a system prompt no ids."""
    found: dict[Seen, None] = {}
    for row in rows:
        segment = row.segment
        turn = segment.turns[0]
        if len(found) < MOST and segment.prefix and turn.is_trained:
            found[Seen(turn.actions, tuple(segment.ids[: turn.start]), turn.wording)] = None
            if turn.kept_back is not None:
                found[Seen(turn.actions, turn.kept_back.rest, KEPT_BACK)] = None
    return list(found)[:MOST]


@torch.no_grad()
def carried(policy: Policy, seen: Sequence[Seen], prompts: tuple[str, str]) -> Carried | None:
    """The adapter of a policy, for another system prompt; None: it has seen nothing, or the new prompt has no ids.

    Args:
        policy: with the adapter that has learnt.
        seen: observations of its last batch.
        prompts: the system prompt under which it has learnt, and the other one.
    """
    narrow = policy.narrow
    assert narrow is not None, "the caller has looked"
    before, after = (policy.chat.opening(prompt, "")[0] for prompt in prompts)
    if not seen or not before or not after:
        return None
    groups = list(_groups(policy, seen, before, after))
    down = torch.zeros_like(narrow.down)
    measure(down, [Read(each.trie.tree, each.wording, each.there) for each in groups])
    up = torch.zeros_like(narrow.up)
    # For each token, the features of the states after which it may come, and by how much it is to be shifted there.
    features: dict[int, list[Tensor]] = {}
    shifts: dict[int, list[Tensor]] = {}
    for trie, _, here, there in groups:
        for before_it, tokens in trie.partings.items():
            column = 1 + before_it  # the prompt's last token is in column 0
            shift = narrow.shifts(here.hidden[:, column], narrow.down, narrow.up[list(tokens)])
            bounded = _bounded(shift)
            for place, token in enumerate(tokens):
                features.setdefault(token, []).append(there.hidden[:, column] @ down.T)
                shifts.setdefault(token, []).append(bounded[:, place] / narrow.scale)
    for token in features:
        up[token] = _fitted(torch.cat(features[token]), torch.cat(shifts[token]))
    return Carried(down, up[narrow.ids])


def _groups(
    policy: Policy, seen: Sequence[Seen], before: tuple[int, ...], after: tuple[int, ...]
) -> Iterator[_Alike]:
    """Observations by their admissible replies and their wording."""
    rests: dict[tuple[tuple[str, ...] | None, int], list[tuple[int, ...]]] = {}
    for actions, rest, wording in seen:
        rests.setdefault((actions, wording), []).append(rest)
    for (actions, wording), group in rests.items():
        trie = policy.trie_of(actions)
        here = states_of(policy, [Opening(before, rest) for rest in group], trie)
        there = states_of(policy, [Opening(after, rest) for rest in group], trie)
        yield _Alike(trie, wording, here, there)


def _bounded(shift: Tensor) -> Tensor:
    """(N, T) shifts of which none is ahead of another by more than `MOST_MARGIN`, and their mean as small."""
    half = MOST_MARGIN / 2
    mean = shift.mean(1, keepdim=True)
    return (shift - mean).clamp(-half, half) + mean.clamp(-half, half)


def _fitted(features: Tensor, shifts: Tensor) -> Tensor:
    """(K,) weights with which (N, K) features come nearest to (N,) shifts."""
    penalty = PENALTY * torch.eye(features.shape[1]).to(features)
    system = features.T @ features / len(features) + penalty
    aim = features.T @ shifts / len(features)
    return torch.linalg.solve(system.double(), aim.double()).to(features)
