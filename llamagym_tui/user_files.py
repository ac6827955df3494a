"""Folders of the user, and what the app keeps there between runs."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from msgspec import Struct

DATA_VARIABLE = "LLAMAGYM_TUI_DATA"
"""Environment variable that replaces the user's data folder."""


def data_dir() -> Path:
    """The user's data folder of this program; not made."""
    if override := os.environ.get(DATA_VARIABLE):
        return Path(override)
    import platformdirs

    return Path(platformdirs.user_data_dir("llamagym-tui", appauthor=False))


def runs_dir() -> Path:
    """Where runs live that were given no folder; not made."""
    return data_dir() / "runs"


CONFIG_VARIABLE = "LLAMAGYM_TUI_CONFIG"
"""Replaces the user's configuration folder."""


PREFERENCES_FILE = "preferences.json"


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


def load_preferences(folder: Path) -> Preferences:
    """What is kept in a folder; the defaults where nothing readable is."""
    try:
        return msgspec.json.decode((folder / PREFERENCES_FILE).read_bytes(), type=Preferences)
    except (OSError, msgspec.MsgspecError):
        return Preferences()


def save_preferences(folder: Path, preferences: Preferences) -> None:
    """Keep them; until the file is whole the old one stays.

    Raises:
        OSError: it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"{PREFERENCES_FILE}.partial"
    partial.write_bytes(msgspec.json.encode(preferences) + b"\n")
    os.replace(partial, folder / PREFERENCES_FILE)
