"""What a person's app keeps between runs, and the folder of what they configure: theme here, keys in `keymap`.

A file that is broken or gone costs its contents only, never the start of the app.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from msgspec import Struct

CONFIG_VARIABLE = "LLAMAGYM_TUI_CONFIG"
"""Replaces the user's configuration folder."""
FILE = "preferences.json"


class Preferences(Struct, frozen=True, kw_only=True):
    """What was chosen last."""

    theme: str | None = None
    """Name of a theme. None: the app's own."""
    drawing: bool | None = None
    """Whether the watched state is drawn. None: where there is room beside the conversation."""


def config_dir() -> Path:
    """The user's configuration folder of this program; not made."""
    if override := os.environ.get(CONFIG_VARIABLE):
        return Path(override)
    import platformdirs

    return Path(platformdirs.user_config_dir("llamagym-tui", appauthor=False))


def load(folder: Path) -> Preferences:
    """What is kept in a folder; the defaults where nothing readable is."""
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=Preferences)
    except (OSError, msgspec.MsgspecError):
        return Preferences()


def save(folder: Path, preferences: Preferences) -> None:
    """Keep them; until the file is whole the old one stays.

    Raises:
        OSError: it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"{FILE}.partial"
    partial.write_bytes(msgspec.json.encode(preferences) + b"\n")
    os.replace(partial, folder / FILE)
