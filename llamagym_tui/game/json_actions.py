"""What JSON in a text gives as the action: an object with an ``action``, or a tool call with one in its arguments."""

import json
import re
from collections.abc import Iterator
from typing import Any

from llamagym_tui.game.answer import plain

CALLS = ("tool_calls", "function_call", "function", "arguments", "parameters", "args", "input")
"""Where an object of a tool call has its function or its arguments, which may be JSON in a string."""
_JSON = json.JSONDecoder(strict=False)
_BEGIN = re.compile(r"\{|\[\s*\{")
"""Of an object, or of a list of them."""
_TAG_BEFORE = re.compile(r"<[^<>]{1,40}>\s*\Z")
_BETWEEN_CALLS = re.compile(r"\s*(?:(?:[,;]|<[^<>]{1,40}>)\s*)+")
"""What stands between two tool calls that are made at once: a comma, or tags."""


def json_actions(text: str) -> Iterator[list[Any]]:
    """What is given as the ``action`` by each JSON value of a text that gives any, in order.

    Tool calls that are made at once, as a list or in tags one after the other, are one such value.
    """
    together: list[Any] = []
    end = 0
    while found := _BEGIN.search(text, end):
        if together and not _BETWEEN_CALLS.fullmatch(text, end, found.start()):
            yield together
            together = []
        try:
            value, end = _JSON.raw_decode(text, found.start())
            together = together + _actions_of(value)
        except (ValueError, RecursionError):
            end = found.start() + 1
    if together:
        yield together


def last_json_action(text: str) -> int:
    """Where the last JSON value with an action begins, or the tag right before it; 0: there is none."""
    place = 0
    end = 0
    while found := _BEGIN.search(text, end):
        try:
            value, end = _JSON.raw_decode(text, found.start())
            names_action = bool(_actions_of(value))
        except (ValueError, RecursionError):
            end = found.start() + 1
            continue
        if names_action:
            tag = _TAG_BEFORE.search(text, 0, found.start())
            place = tag.start() if tag else found.start()
    return place


def _actions_of(value: Any) -> list[Any]:
    """What an object or a tool call gives as its action, or each one of a list of them."""
    if isinstance(value, list):
        return [action for part in value for action in _actions_of(part)]
    if isinstance(value, str) and value.lstrip().startswith("{"):
        return _actions_of(_JSON.raw_decode(value.lstrip())[0])
    if not isinstance(value, dict):
        return []
    given = [item for key, item in value.items() if plain(key).strip().lower() == "action"]
    if given:
        return given
    calls = [value[key] for key in CALLS if key in value]
    if not calls:
        return []
    actions = _actions_of(calls)
    if not actions and "name" in value:  # the function has the action's name
        actions = [value["name"]]
    return actions
