"""Folders of the user, what the app keeps there between runs, and files that a crash leaves whole."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

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
"""Environment variable that replaces the user's configuration folder."""
PREFERENCES_FILE = "preferences.json"


class Preferences(Struct, frozen=True, kw_only=True):
    """What was chosen last."""

    theme: str | None = None
    """Name of a theme. None: the app's own."""
    drawing: bool | None = None
    """Whether the watched state is drawn. None: where there is room next to the conversation."""


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
    """Keep them for later runs.

    Raises:
        OSError: they cannot be written.
    """
    replace_file(folder / PREFERENCES_FILE, msgspec.json.encode(preferences) + b"\n")


def replace_file(path: Path, content: bytes, *, sync: bool = False) -> None:
    """Write a file; until it is whole the old one stays. Folders are made.

    Args:
        path: of the file.
        content: all of it.
        sync: whether it is on the disk, not only with the operating system, before it takes the old one's place.

    Raises:
        OSError: it cannot be written; the old file is then as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def torn_line_start(file: IO[bytes]) -> int:
    """The byte at which a last line without an end begins, as a crash leaves one; the file's length if none is torn."""
    end = file.seek(0, os.SEEK_END)
    while end:  # backwards, a block at a time
        start = max(0, end - 65_536)
        file.seek(start)
        if (newline := file.read(end - start).rfind(b"\n")) >= 0:
            return start + newline + 1
        end = start
    return 0
