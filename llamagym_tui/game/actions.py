"""Reading an action out of a reply: JSON first, then the pattern ``Action: …``, then a keyword; how, is kept."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

How = Literal["json", "pattern", "keyword", "custom", "human", "failed"]
"""How a reply was read: ``custom`` by an agent's own code, ``human`` chosen by a person."""

MAX_REPLY_CHARS = 20_000
"""Only so much of a reply's end is read: broken JSON is searched in time that grows with the square."""
# A number must end where it seems to: 1.5, 1,000 and 1st are no actions, "1." at a sentence's end is one.
_PATTERN = re.compile(
    r"\baction\b[\"'*_`]*\s*(?:is\b|=|:)\s*[\"'*_`]*(-?[0-9]+(?!\w|[.,][0-9])|[A-Za-z][\w-]*)",
    re.IGNORECASE,
)


class ActionReading(NamedTuple):
    """An action and the way it was read."""

    action: Any
    """The action for ``env.step``; ``None`` when reading failed."""
    how: How

    @property
    def failed(self) -> bool:
        """Whether no action could be read."""
        return self.how == "failed"


FAILED = ActionReading(None, "failed")


def read_action(reply: str, action_names: Sequence[str]) -> ActionReading:
    """The discrete action that a reply names, with the way it was read.

    The last JSON object with an ``action`` counts, then the last ``Action: …``, then a keyword if the reply
    names exactly one action. An action is given by its index or by its name, in any case; booleans, fractions
    and indices out of range are not actions.

    Args:
        reply: the model's text.
        action_names: names by index; their count bounds the indices.
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
    *_, value = None, *_json_actions(reply[-MAX_REPLY_CHARS:])
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _json_actions(reply: str) -> Iterator[Any]:
    """Values of ``action`` in the JSON objects of a reply, outermost objects in order."""
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
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        lowered = [name.lower() for name in action_names]
        if value.strip().lower() in lowered:
            return lowered.index(value.strip().lower())
        if not re.fullmatch(r"-?[0-9]{1,9}", value.strip()):
            return None
        value = int(value)
    if isinstance(value, int) and 0 <= value < len(action_names):
        return value
    return None


def _by_keyword(reply: str, action_names: Sequence[str]) -> ActionReading:
    """The one action whose name stands in the reply; the longest name counts, so "up-left" is not "left" too."""
    indices = {name.casefold(): index for index, name in enumerate(action_names) if name}
    if not indices:
        return FAILED
    names = "|".join(re.escape(name) for name in sorted(indices, key=len, reverse=True))
    found = re.findall(rf"(?<!\w)(?:{names})(?!\w)", reply, re.IGNORECASE)
    named = {indices.get(name.casefold()) for name in found}
    action = named.pop() if len(named) == 1 else None
    return FAILED if action is None else ActionReading(action, "keyword")
