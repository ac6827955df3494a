"""What a trunk that is not trained says of prompts and of the admissible replies behind them: remembered, or computed.

Where only an adapter on the head is trained, this never changes, so that rollout, update, reference, evaluation and
policy map read a prompt once in a run. Notation: B prompts, M nodes of a tree of replies.
"""

from collections.abc import Sequence

import torch

from llamagym_tui.engine.model.forward import Backbone, Encoded
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.tokens.token_tree import ActionTrie, TokenTree, tree_rows
from llamagym_tui.engine.tokens.tokenization import Opening

COLUMNS_AT_ONCE = 1024
"""Columns of one forward over prompts at most, padding included; one prompt may have more."""


@torch.no_grad()
def states_of(policy: Policy, prompts: Sequence[Opening], trie: ActionTrie) -> Encoded:
    """B rows of 1 + M columns: a prompt's last token, then the nodes of the tree of admissible replies.

    Args:
        policy: one whose trunk is fixed; its `on_reading` is told of the prompts that are not remembered.
        prompts: all ids before a reply.
        trie: the admissible replies.
    """
    narrow = policy.narrow
    assert narrow is not None, "the caller has looked"

    def compute(indices: list[int]) -> Encoded:
        order: list[int] = []
        parts: list[Encoded] = []
        policy.on_reading(0, len(indices))
        for group in _groups(prompts, indices, len(trie.tree)):
            parts.append(_behind(policy.model.backbone, [prompts[index] for index in group], trie))
            order += group
            policy.on_reading(len(order), len(indices))
        place = {index: at for at, index in enumerate(indices)}
        positions = torch.tensor([place[index] for index in order], device=narrow.up.device)
        positions = positions.argsort()
        return narrow.kept(Encoded.joined(parts, positions))

    keys = [(trie.tree, tuple(prompt.prefix), tuple(prompt.rest)) for prompt in prompts]
    return policy.memory.rows(keys, compute, narrow.is_whole)


def _groups(prompts: Sequence[Opening], indices: Sequence[int], nodes: int) -> list[list[int]]:
    """Indices of prompts for one forward each: of one prefix, of similar length, and not too many."""
    groups: list[list[int]] = []
    ordered = sorted(indices, key=lambda index: (prompts[index].prefix, -len(prompts[index].rest)))
    for index in ordered:
        last = groups[-1] if groups else []
        is_alike = bool(last) and prompts[last[0]].prefix == prompts[index].prefix
        width = len(prompts[last[0]].rest) + nodes if last else 0
        if not is_alike or width * (len(last) + 1) > COLUMNS_AT_ONCE:
            groups.append([])
        groups[-1].append(index)
    return groups


def _behind(backbone: Backbone, prompts: Sequence[Opening], trie: ActionTrie) -> Encoded:
    """The last token of prompts that begin with one prefix, and the nodes of the tree behind each."""
    trees: list[TokenTree] = []
    columns: list[list[int]] = []
    for prompt in prompts:
        tree = TokenTree.of(prompt.rest)
        end = len(prompt.rest)
        for reply in trie.replies:
            tree.insert([*prompt.rest, *reply[:-1]])
        trees.append(tree)
        # Replies are inserted in one order everywhere, so that node k of the tree is column k behind the prompt.
        columns.append(list(range(end - 1, end + len(trie.tree))))
    rows = torch.arange(len(trees), device=backbone.device)[:, None]
    at = torch.tensor(columns, device=backbone.device)
    packed = tree_rows(trees, backbone.device)
    read = torch.zeros_like(packed.ids, dtype=torch.bool)
    read[rows, at] = True
    return backbone.encode_trees(tuple(prompts[0].prefix), packed, read).picked(rows, at)
