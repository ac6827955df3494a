"""``--set NAME=VALUE``: any setting of a run by its name in `config`, as ``ppo.lr=1e-3``, checked by itself."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, Literal, get_args, get_origin

import msgspec

from llamagym_tui.config import in_sections, setting_types
from llamagym_tui.errors import UsageError

OPTIONS_OF = {name: f"--{name.replace('_', '-')}" for name in ("env", "model", "run_dir", "resume")}
OPTIONS_OF |= {"agent": "the argument AGENT", "parent": "--from"}
"""Settings that are more than a value, and how they are given."""


def settings(assignments: Sequence[str]) -> dict[str, Any]:
    """Settings as `RunConfig` takes them, the sections partly filled; of two of one name, the later.

    Args:
        assignments: NAME=VALUE each; ``none`` is None, a list is JSON.
    Raises:
        UsageError: a name is unknown, or a value not of its setting; the message names it.
    """
    types = setting_types()
    read: dict[str, Any] = {}
    for assignment in assignments:
        name, has_value, text = assignment.partition("=")
        if not has_value:
            raise UsageError(
                f"A setting is given as NAME=VALUE, as in ppo.lr=1e-3, not as {assignment!r}."
            )
        if name in OPTIONS_OF:
            raise UsageError(f"{name} is no such setting: it is given by {OPTIONS_OF[name]}.")
        if name not in types:
            raise UsageError(f"There is no setting {name!r}; {_near(name, list(types))}.")
        read[name] = _value(name, text, types[name])
    return in_sections(read, {})


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """`above` overrides `below`, section by section."""
    both = {
        name: below[name] | value
        for name, value in above.items()
        if isinstance(value, dict) and name in below
    }
    return {**below, **above, **both}


def _value(name: str, text: str, kind: Any) -> Any:
    try:
        word = "null" if text.lower() == "none" else text
        return msgspec.convert(
            msgspec.json.decode(text) if text.startswith("[") else word, kind, strict=False
        )
    except ValueError as error:
        if get_origin(kind) is Literal:
            raise UsageError(
                f"{name} takes {' or '.join(map(str, get_args(kind)))}, not {text!r}."
            ) from error
        wanted = (
            str(error)
            .removeprefix("Expected ")
            .split(", got")[0]
            .replace("`", "")
            .replace("null", "none")
        )
        raise UsageError(f"{name} takes {wanted}, not {text!r}.") from error


def _near(name: str, names: list[str]) -> str:
    last = name.rpartition(".")[2]
    near = [known for known in names if known.rpartition(".")[2] == last]
    near += [
        known for known in get_close_matches(name, names, n=4, cutoff=0.5) if known not in near
    ]
    return f"near it: {', '.join(near)}" if near else "the config.json of every run has them all"
