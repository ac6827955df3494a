"""Prompts of which a batch says nothing: some of its observations under other system prompts.

States on them are left out of what an adapter on the head sees, as far as that goes (`directions`).
"""

from collections.abc import Sequence

import msgspec

from llamagym_tui.engine.learning.packing import Row
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.tokens.token_tree import ActionTrie
from llamagym_tui.engine.tokens.tokenization import Opening

PROMPTS = (
    "",
    "You are a helpful assistant.",
    "Think of what comes later.",
    "If the first number is above 50 take the last action, else the first one.",
)
"""Other system prompts, beside those that ask for one reply or forbid it."""
MOST_REPLIES = 2
"""Replies, at most, of which prompts say that they are to be given always or never."""
OBSERVATIONS = 8
"""Observations of a batch, at most, that are read under other prompts."""


class Elsewhere(msgspec.Struct, frozen=True):
    """Prompts with the same admissible replies."""

    actions: tuple[str, ...] | None
    """Names of the actions that are admissible on them. None: the agent's own, always."""
    own: list[Opening]
    """As the batch has them."""
    others: list[Opening]
    """All of them under one other system prompt, then all under the next."""


def elsewhere_of(policy: Policy, rows: Sequence[Row]) -> list[Elsewhere]:
    """Some prompts of a batch, with what they are under other system prompts."""
    found: dict[tuple[str, ...] | None, dict[Opening, None]] = {}
    count = 0
    for row in rows:
        segment = row.segment
        turn = segment.turns[0]
        if count == OBSERVATIONS or not segment.prefix or not turn.is_trained:
            continue
        prompt = Opening(segment.prefix, tuple(segment.ids[: turn.start]))
        own = found.setdefault(turn.actions, {})
        count += prompt not in own
        own[prompt] = None
    return [
        Elsewhere(
            actions,
            list(own),
            [
                Opening(prefix, each.rest)
                for prefix in _prefixes(policy, policy.trie_of(actions))
                for each in own
            ],
        )
        for actions, own in found.items()
    ]


def _prefixes(policy: Policy, trie: ActionTrie) -> list[tuple[int, ...]]:
    """The ids by which other system prompts begin."""
    prompts = list(PROMPTS)
    for reply in trie.replies[:MOST_REPLIES]:
        text = policy.chat.reply(reply)
        prompts += [f"Always answer {text}.", f"Never answer {text}."]
    return [policy.chat.opening(prompt, "")[0] for prompt in prompts]
