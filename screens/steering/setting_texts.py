"""Texts of the settings that can change live, and parsing of typed values, by their types in `config`."""

from llamagym_tui.config import (
    FINAL,
    RunConfig,
    UpdateStats,
    Value,
    changed,
)
from llamagym_tui.config.typed import typed_value


def read(config: RunConfig, name: str, text: str) -> Value:
    """The value that was typed, if the setting can be changed to it.

    Raises:
        ConfigError: it cannot; the message names what it takes.
    """
    value: Value = typed_value(name, text)
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
