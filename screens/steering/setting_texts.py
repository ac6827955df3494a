"""Texts of the settings that can change live, and parsing of typed values, by their types in `config`."""

import math

import msgspec
from msgspec import inspect

from llamagym_tui.config import (
    FINAL,
    LARGEST,
    RunConfig,
    UpdateStats,
    Value,
    changed,
    setting_types,
)
from llamagym_tui.errors import ConfigError


def takes(name: str) -> str:
    """What a setting takes, in words."""
    return _takes(inspect.type_info(setting_types()[name]))


def read(config: RunConfig, name: str, text: str) -> Value:
    """The value that was typed, if the setting can be changed to it.

    Raises:
        ConfigError: it cannot; the message names what it takes.
    """
    text = text.strip()
    try:
        value: Value = msgspec.convert(
            "null" if text.lower() == "none" else text, setting_types()[name], strict=False
        )
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(text)
    except ValueError as error:
        raise ConfigError(f"{name} takes {takes(name)}, not {text!r}.") from error
    changed(config, {name: value})
    return value


def value_text(value: Value) -> str:
    """A value as it is typed."""
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def shown_value(name: str, value: Value) -> str:
    """A value as it is shown: as it is typed, or in words where that says little."""
    if name == "history" and value == "own":
        return "the agent's default"
    return value_text(value)


def scheduled_value(name: str, stats: UpdateStats | None) -> float | None:
    """Current value of a scheduled setting; None if it has no schedule, or there was no update."""
    if stats is None or name not in FINAL:
        return None
    return float(getattr(stats, name.removeprefix("ppo.")))


def _takes(kind: inspect.Type) -> str:
    match kind:
        case inspect.LiteralType(values=values):
            return " or ".join(map(str, values))
        case inspect.UnionType(types=types):
            return " or ".join(_takes(each) for each in types)
        case inspect.NoneType():
            return "none"
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
