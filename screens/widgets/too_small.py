"""The message in place of a screen when the terminal is too small for it."""

from __future__ import annotations

from textual.geometry import Size
from textual.widgets import Static

MIN_WIDTH = 60
"""Cells."""
MIN_HEIGHT = 16
"""Rows."""


class TooSmall(Static):
    DEFAULT_CSS = """
    TooSmall { display: none; width: 1fr; height: 1fr; content-align: center middle; }
    .-too-narrow > *, .-too-short > * { display: none; }
    .-too-narrow > TooSmall, .-too-short > TooSmall { display: block; }
    """
    SCOPED_CSS = False  # it hides what surrounds it

    def __init__(self) -> None:
        super().__init__(f"terminal too small: it needs {MIN_WIDTH} × {MIN_HEIGHT}", markup=False)


def is_too_small(size: Size) -> bool:
    return size.width < MIN_WIDTH or size.height < MIN_HEIGHT
