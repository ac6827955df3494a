"""Settings as people type them: after an option, as NAME=VALUE after ``--set``, and in the dialog of settings."""

import math
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import msgspec
from msgspec import inspect

from llamagym_tui.errors import ConfigError
from llamagym_tui.settings.fields import LARGEST
from llamagym_tui.settings.run import OPTIONS, setting_types

OWN_OPTIONS = ("agent", "env", "model", "run_dir", "resume", "parent")
"""Settings that need more than a value: `--set` refuses them."""


def setting_info(name: str) -> inspect.Type:
    """The type of a setting, as `msgspec.inspect` describes it."""
    return inspect.type_info(setting_types()[name])


def takes(name: str) -> str:
    """The values that a setting accepts, in words."""
    return _takes(setting_info(name))


def typed_value(name: str, text: str, called: str = "") -> Any:
    """A text as a value of a setting; ``none`` is None, a list is JSON. An error has it `called`, or by its name.

    Raises:
        ConfigError: the setting does not accept it; the message names what it takes.
    """
    text = text.strip()
    kind = setting_types()[name]
    try:
        if text.startswith("["):
            return msgspec.convert(msgspec.json.decode(text), kind, strict=False)
        value = msgspec.convert("null" if text.lower() == "none" else text, kind, strict=False)
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(text)
    except ValueError as error:
        raise ConfigError(f"{called or name} takes {takes(name)}, not {text!r}.") from error
    return value


def assigned(assignments: Sequence[str]) -> dict[str, Any]:
    """Settings by their dotted names, from NAME=VALUE each; the last of a name counts.

    Raises:
        ConfigError: a name is unknown, or a value does not fit its setting.
    """
    types = setting_types()
    read: dict[str, Any] = {}
    for assignment in assignments:
        name, has_value, text = assignment.partition("=")
        if not has_value:
            raise ConfigError(
                f"A setting is given as NAME=VALUE, as in ppo.lr=1e-3, not as {assignment!r}."
            )
        if name in OWN_OPTIONS:
            by = OPTIONS[name].flag if name in OPTIONS else "the argument AGENT"
            raise ConfigError(f"{name} is not set like this; give it by {by}.")
        if name not in types:
            raise ConfigError(f"There is no setting {name!r}; {_near(name, list(types))}.")
        read[name] = typed_value(name, text)
    return read


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of both, in sections; where both have one, `above` counts."""
    both = {**below, **above}
    for name, value in above.items():
        if isinstance(value, dict) and isinstance(below.get(name), dict):
            both[name] = below[name] | value
    return both


def has(settings: Mapping[str, Any], name: str) -> bool:
    """True if settings, in sections, have one of that dotted name."""
    section, _, key = name.rpartition(".")
    return key in (settings.get(section, {}) if section else settings)


def _takes(kind: inspect.Type) -> str:
    match kind:
        case inspect.Metadata(type=inner):
            return _takes(inner)
        case inspect.LiteralType(values=values):
            return " or ".join(map(str, values))
        case inspect.UnionType(types=types):
            return " or ".join(_takes(each) for each in types)
        case inspect.NoneType():
            return "none"
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType(ge=low):
            return "a whole number" if low is None else f"a whole number from {low}"
        case inspect.FloatType(gt=above, ge=low, le=high):
            words = "a number"
            if above is not None:
                words += f" above {above:g}"
            elif low is not None:
                words += f" from {low:g}"
            if high is not None and high < LARGEST:
                words += f" to {high:g}"
            return words
        case _:
            return "text"


def _near(name: str, names: list[str]) -> str:
    """The end of a message: the settings that may have been meant."""
    last_part = name.rpartition(".")[2]
    near = [known for known in names if known.rpartition(".")[2] == last_part]
    near = near or get_close_matches(name, names, n=4, cutoff=0.5)
    return f"near it: {', '.join(near)}" if near else "the config.json of every run has them all"
