"""How the app looks: theme, colours of charts, sizes at which screens change their layout, exported pictures."""

from __future__ import annotations

import re
from collections.abc import Mapping

from textual.geometry import Size
from textual.theme import Theme

from llamagym_tui.screens.widgets.too_small import MIN_HEIGHT, MIN_WIDTH

WIDE = 120
"""Cells from which chart and figures stand next to the conversation."""
WIDTHS: list[tuple[int, str]] = [(0, "-too-narrow"), (MIN_WIDTH, "-narrow"), (WIDE, "-wide")]
HEIGHTS: list[tuple[int, str]] = [(0, "-too-short"), (MIN_HEIGHT, "-tall")]
"""Style classes of every screen, by size of the terminal."""
ASIDE = "$foreground 60%"
"""Style of text that is less important."""

THEME = Theme(
    name="llamagym",
    primary="#7db4ff",
    secondary="#5c86bd",
    accent="#c9a7ff",
    success="#7fcf9a",
    warning="#e8bf6a",
    error="#f07a7a",
    foreground="#d6dbe3",
    background="#0e1116",
    surface="#141921",
    panel="#1d242f",
    variables={
        "scrollbar": "#2b3545",
        "scrollbar-hover": "#3a475c",
        "scrollbar-active": "#7db4ff",
        "scrollbar-background": "#0e1116",
        "scrollbar-background-hover": "#0e1116",
        "scrollbar-background-active": "#0e1116",
        "footer-background": "#1d242f",
    },
)


def size_classes(size: Size) -> list[str]:
    width = max(step for step in WIDTHS if step[0] <= size.width)
    height = max(step for step in HEIGHTS if step[0] <= size.height)
    return [width[1], height[1]]


def plot_colors(variables: Mapping[str, str]) -> dict[str, str]:
    """The colours of a theme as Rich names them, for charts."""
    return {name: color.removeprefix("ansi_") for name, color in variables.items()}


def self_contained(svg: str) -> str:
    """A picture without links to other hosts: web fonts and credits are left out."""
    return re.sub(r"@font-face\s*\{[^}]*\}|<!--.*?-->", "", svg, flags=re.DOTALL)
