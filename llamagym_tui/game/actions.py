"""Reads the action that a reply names: from JSON first, then from ``Action: …``, then from a keyword.

Each reading also says in which of these ways the action was found.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

How = Literal["json", "pattern", "keyword", "custom", "human", "failed"]
"""How an action was found; ``custom``: by an agent's own code, ``human``: a person chose it."""

MAX_REPLY_CHARS = 20_000
"""Characters at a reply's end that are read: the time to search broken JSON grows with the square of its length."""
# The number must not go on: 1.5, 1,000 and 1st are not the action 1, but the "1." that ends a sentence is.
_PATTERN = re.compile(
    r"\baction\b[\"'*_`]*\s*(?:is\b|=|:)\s*[\"'*_`]*(-?[0-9]+(?!\w|[.,][0-9])|[A-Za-z][\w-]*)",
    re.IGNORECASE,
)


class ActionReading(NamedTuple):
    """An action, and how it was found in the reply."""

    action: Any
    """The action for ``env.step``; ``None`` if the reply names none."""
    how: How

    @property
    def failed(self) -> bool:
        """Whether the reply names no action."""
        return self.how == "failed"


FAILED = ActionReading(None, "failed")
"""The reading of a reply that names no action."""


def read_action(reply: str, action_names: Sequence[str]) -> ActionReading:
    """The discrete action that a reply names, and how it was found.

    The last JSON object with an ``action`` counts, then the last ``Action: …``, then a keyword if the reply
    names exactly one action. An action is given by its index or by its name, in upper or lower case; booleans,
    fractions and indices out of range are not actions.

    Args:
        reply: the model's text.
        action_names: the names in the order of the indices; there are as many actions as names.
    """
    reply = reply[-MAX_REPLY_CHARS:]
    for value in reversed(list(_json_actions(reply))):
        action = _index(value, action_names)
        if action is not None:
            return ActionReading(action, "json")
    for match in reversed(list(_PATTERN.finditer(reply))):
        action = _index(match.group(1), action_names)
        if action is not None:
            return ActionReading(action, "pattern")
    return _by_keyword(reply, action_names)


def json_index(reply: str) -> int | None:
    """The index that the last JSON object with an ``action`` gives; None: there is none, or it is no index."""
    values = list(_json_actions(reply[-MAX_REPLY_CHARS:]))
    if not values:
        return None
    value = values[-1]
    # In Python a bool is an int, too.
    is_index = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if is_index else None


def _json_actions(reply: str) -> Iterator[Any]:
    """The values of ``action`` in the JSON objects of a reply, in order; objects within others are not searched."""
    decoder = json.JSONDecoder()
    at = reply.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(reply, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            for key, item in value.items():
                if key.lower() == "action":
                    yield item
        at = reply.find("{", end)


def _index(value: Any, action_names: Sequence[str]) -> int | None:
    """The index of the action that a value names, by name or by number; None: it names none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        word = value.strip().lower()
        lowered = [name.lower() for name in action_names]
        if word in lowered:
            return lowered.index(word)
        if not re.fullmatch(r"-?[0-9]{1,9}", word):
            return None
        value = int(word)
    if isinstance(value, int) and 0 <= value < len(action_names):
        return value
    return None


def _by_keyword(reply: str, action_names: Sequence[str]) -> ActionReading:
    """The one action whose name stands in the reply. Where names overlap the longest counts: "up-left" is not also
    "left"."""
    indices = {name.casefold(): index for index, name in enumerate(action_names) if name}
    if not indices:
        return FAILED
    names = "|".join(re.escape(name) for name in sorted(indices, key=len, reverse=True))
    found = re.findall(rf"(?<!\w)(?:{names})(?!\w)", reply, re.IGNORECASE)
    named = {indices.get(name.casefold()) for name in found}
    if len(named) != 1:
        return FAILED
    action = named.pop()
    return FAILED if action is None else ActionReading(action, "keyword")
