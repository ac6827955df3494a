"""The memory of what the model said after a prompt, and the forwards that fill it.

It holds for one version of the trained weights. Where only an adapter on the head is trained, that is for ever, so
rollout, update, evaluation and policy map read each prompt once in a run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from llamagym_tui.engine.model.forward import Encoded
from llamagym_tui.engine.tokens.token_tree import ActionTrie, ForwardLimits, TokenTree, grouped
from llamagym_tui.engine.tokens.tokenization import Opening

if TYPE_CHECKING:
    from llamagym_tui.engine.policy.policy import Policy

FORWARD_TOKENS = 1024
"""Tokens of a forward over prompts."""
Key = tuple[TokenTree, Opening]
"""A prompt, and the tree of replies behind it."""


class PromptMemory:
    """Results of forwards by prompt, up to a number of bytes. A full memory is emptied."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._known: dict[Key, Encoded] = {}
        self._bytes = 0
        self._looked_up = 0
        self._found = 0

    def take_share(self) -> float:
        """Fraction of the prompts since the last call that needed no forward; 0 without any."""
        share = self._found / max(self._looked_up, 1)
        self._looked_up = 0
        self._found = 0
        return share

    def clear(self) -> None:
        self._known.clear()
        self._bytes = 0

    def rows(
        self,
        keys: Sequence[Key],
        compute: Callable[[list[int]], list[Encoded]],
        is_whole: Callable[[Encoded], bool],
    ) -> Encoded:
        """One row for each of B prompts.

        Args:
            keys: of the prompts.
            compute: gives rows for the prompts at these indices.
            is_whole: False for a remembered row that must be computed again.
        """
        found = {
            key: self._known[key]
            for key in keys
            if key in self._known and is_whole(self._known[key])
        }
        new: dict[Key, int] = {}
        for index, key in enumerate(keys):
            if key not in found:
                new.setdefault(key, index)
        self._looked_up += len(keys)
        self._found += len(keys) - len(new)
        if new:
            made = dict(zip(new, compute(list(new.values())), strict=True))
            found |= made
            self._remember(made)
        return Encoded.stacked([found[key] for key in keys])

    def _remember(self, made: dict[Key, Encoded]) -> None:
        size = sum(row.bytes for row in made.values())
        if self._bytes + size > self._most_bytes:
            self.clear()
        if size <= self._most_bytes:
            self._known |= made
            self._bytes += size


@torch.no_grad()
def states_of(
    policy: Policy,
    prompts: Sequence[Opening],
    trie: ActionTrie,
    memory: PromptMemory | None = None,
) -> Encoded:
    """B rows of 1 + M columns: a prompt's last token, then the nodes of the tree of admissible replies.

    Args:
        policy: its `on_reading` is told how many prompts of a forward have been read.
        prompts: all ids before a reply.
        trie: the admissible replies.
        memory: of the weights as they are. None: the policy's own where only an adapter on the head is trained, else
            nothing is remembered.
    """
    narrow = policy.narrow

    def compute(indices: list[int]) -> list[Encoded]:
        found: dict[int, Encoded] = {}
        policy.on_reading(0, len(indices))
        ordered = sorted(indices, key=lambda index: prompts[index])
        limits = ForwardLimits(FORWARD_TOKENS, flat=policy.model.backbone.is_lean)

        def insert(tree: TokenTree, index: int) -> list[int]:
            return _insert(tree, prompts[index], trie)

        for tree, members in grouped(ordered, insert, limits):
            columns = [each for _, each in members]
            read = [column for each in columns for column in each]
            whole = policy.model.backbone.encode_tree(tree, read)
            at = torch.tensor(columns, device=whole.hidden.device)
            encoded = whole.picked(torch.zeros_like(at), at)
            if narrow is not None:
                encoded = narrow.kept(encoded)
            found |= zip([index for index, _ in members], encoded.rows(), strict=True)
            policy.on_reading(len(found), len(indices))
        return [found[index] for index in indices]

    if memory is None:
        memory = policy.memory if narrow is not None else PromptMemory(0)
    is_whole = narrow.is_whole if narrow is not None else lambda row: True
    return memory.rows(_keys(prompts, trie), compute, is_whole)


def _keys(prompts: Sequence[Opening], trie: ActionTrie) -> list[Key]:
    return [(trie.tree, Opening(tuple(prompt.prefix), tuple(prompt.rest))) for prompt in prompts]


def _insert(tree: TokenTree, prompt: Opening, trie: ActionTrie) -> list[int]:
    """Add a prompt with the replies behind it; the columns of its last token and of the replies' nodes."""
    last = tree.insert([*prompt.prefix, *prompt.rest])[-1]
    columns = [last] * (1 + len(trie.tree))
    for reply, nodes in zip(trie.replies, trie.paths, strict=True):
        path = tree.insert(reply[:-1], after=last)
        for node, column in zip(nodes, path, strict=True):
            columns[1 + node] = column
    return columns
