"""What a trunk says of prompts and of the admissible replies behind them: remembered, or computed.

Where only an adapter on the head is trained, this never changes, so that rollout, update, reference, evaluation and
policy map read a prompt once in a run. Where the top layers are trained, it holds for a version of the policy.
Notation: B prompts, M nodes of a tree of replies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from llamagym_tui.engine.model.forward import Backbone, Encoded
from llamagym_tui.engine.policy.known_tokens import Key, PromptMemory
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.tokens.token_tree import ROOT, ActionTrie, TokenTree, tree_rows
from llamagym_tui.engine.tokens.tokenization import Opening

LOGITS_AT_ONCE = 2**25
"""Numbers in the logits of columns that are looked at, at most, in one piece."""
COLUMNS_AT_ONCE = 1024
"""Columns of one forward over prompts at most; one prompt may have more."""


class ReplyEncoded(Encoded):
    """Hidden states with how probable admissible replies are behind them, for which no logits are needed any more."""

    def __init__(self, head: nn.Module, hidden: Tensor, logprobs: Tensor) -> None:
        super().__init__(head, hidden, logprobs)
        self.logprobs = logprobs
        """(B, 1 + M, N) log-probability after each column of each of the N tokens of replies, reply after reply; a
        token's own is that after the node before it."""

    @classmethod
    def of(cls, encoded: Encoded, backbone: Backbone, trie: ActionTrie) -> ReplyEncoded:
        """Computed in parts of a few rows, because the logits of all would be large."""
        hidden = encoded.hidden  # (B, 1 + M, D)
        tokens = torch.tensor([token for reply in trie.replies for token in reply])
        size = max(1, LOGITS_AT_ONCE // (hidden.shape[1] * backbone.vocabulary))
        found = [
            backbone.head(rows).float().log_softmax(-1)[..., tokens] for rows in hidden.split(size)
        ]
        return cls(backbone.head, hidden, torch.cat(found))

    def logits_at(self, rows: Tensor, columns: Tensor) -> Tensor:
        """(N, V) logits at N positions, in fp32."""
        return self._head(self.hidden[rows, columns]).float()


@torch.no_grad()
def states_of(
    policy: Policy,
    prompts: Sequence[Opening],
    trie: ActionTrie,
    memory: PromptMemory | None = None,
) -> Encoded:
    """B rows of 1 + M columns: a prompt's last token, then the nodes of the tree of admissible replies.

    Args:
        policy: its `on_reading` is told of the prompts that are not remembered.
        prompts: all ids before a reply.
        trie: the admissible replies.
        memory: what this version of the policy has read. None: that of a policy whose trunk is fixed.
    """
    narrow = policy.narrow

    def compute(indices: list[int]) -> Encoded:
        order: list[int] = []
        parts: list[Encoded] = []
        policy.on_reading(0, len(indices))
        for group in groups(prompts, indices, trie):
            parts.append(_read(policy.model.backbone, group))
            order += group.indices
            policy.on_reading(len(order), len(indices))
        place = {index: at for at, index in enumerate(indices)}
        positions = torch.tensor([place[index] for index in order], device=parts[0].hidden.device)
        encoded = Encoded.joined(parts, positions.argsort())
        if narrow is not None:
            return narrow.kept(encoded)
        return ReplyEncoded.of(encoded, policy.model.backbone, trie) if is_chosen else encoded

    is_chosen = policy.generation.policy == "score"
    if narrow is None:
        assert memory is not None, "a trunk that is trained is not that of the version before"
        return memory.rows(
            _keys(prompts, trie), compute, lambda row: isinstance(row, ReplyEncoded) == is_chosen
        )
    return policy.memory.rows(_keys(prompts, trie), compute, narrow.is_whole)


def share_of_known(policy: Policy, prompts: Sequence[Opening], trie: ActionTrie) -> float:
    """Share of the prompts that a policy has read that are among these; 0 if it has read none."""
    return policy.memory.share_of(set(_keys(prompts, trie)))


def _keys(prompts: Sequence[Opening], trie: ActionTrie) -> list[Key]:
    return [(trie.tree, tuple(prompt.prefix), tuple(prompt.rest)) for prompt in prompts]


class _Group(NamedTuple):
    """Prompts of one forward, with the replies behind them: one tree, so that what they have in common is read once."""

    prefix: tuple[int, ...]
    """What all of them begin with, before the tree."""
    tree: TokenTree
    indices: list[int]
    """Of the prompts."""
    columns: list[list[int]]
    """Of each, where its last token and the nodes of the replies' tree are."""


def groups(
    prompts: Sequence[Opening], indices: Sequence[int], trie: ActionTrie
) -> Iterator[_Group]:
    """Prompts for one forward each: of one prefix, those that begin alike together, and not too many."""
    group: _Group | None = None
    for index in sorted(indices, key=lambda index: (prompts[index].prefix, prompts[index].rest)):
        prompt = prompts[index]
        prefix = tuple(prompt.prefix)
        if group is not None:
            more = group.tree.columns_for(prompt.rest) + len(trie.tree)
            if prefix != group.prefix or len(group.tree) + more > COLUMNS_AT_ONCE:
                yield group
                group = None
        if group is None:
            group = _Group(prefix, TokenTree(), [], [])
        group.indices.append(index)
        group.columns.append(_insert(group.tree, prompt.rest, trie))
    if group is not None:
        yield group


def _insert(tree: TokenTree, rest: Sequence[int], trie: ActionTrie) -> list[int]:
    """Add a prompt with the admissible replies behind it; the columns of its last token and of the replies' nodes."""
    columns = [ROOT] * (1 + len(trie.tree))
    columns[0] = tree.insert(rest)[-1]
    for reply, nodes in zip(trie.replies, trie.paths, strict=True):
        path = tree.insert([*rest, *reply[:-1]])
        for node, column in zip(nodes, path[len(rest) :], strict=True):
            columns[1 + node] = column
    return columns


def _read(backbone: Backbone, group: _Group) -> Encoded:
    """The last token of each prompt of a group, and the nodes of the replies' tree behind it."""
    at = torch.tensor(group.columns, device=backbone.device)
    packed = tree_rows([group.tree], backbone.device)
    read = torch.zeros_like(packed.ids, dtype=torch.bool)
    read[0, at] = True
    rows = torch.zeros_like(at)
    return backbone.encode_trees(group.prefix, packed, read).picked(rows, at)
