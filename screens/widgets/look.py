"""How the app looks: theme, style sheets of widgets, colours of charts, exported pictures."""

import re
from collections.abc import Mapping
from pathlib import Path

from textual.theme import Theme

from llamagym_tui.user_files import file_text

ASIDE = "$aside"
"""Style of text that is less important."""

THEMES = [
    Theme(
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
    ),
    Theme(
        name="projector",
        dark=False,
        primary="#0033cc",
        secondary="#4d7dff",
        accent="#7a00b8",
        success="#006b1f",
        warning="#a34700",
        error="#c00000",
        foreground="#000000",
        background="#ffffff",
        surface="#f2f2f2",
        panel="#dcdcdc",
    ),
]
"""The own theme; one of strong colours for a lit room, with which the playground has large figures and few words."""


def plot_colors(variables: Mapping[str, str]) -> dict[str, str]:
    """The colours of a theme as Rich names them, for charts."""
    return {name: color.removeprefix("ansi_") for name, color in variables.items()}


def self_contained(svg: str) -> str:
    """A picture without links to other hosts: web fonts and credits are left out."""
    return re.sub(r"@font-face\s*\{[^}]*\}|<!--.*?-->", "", svg, flags=re.DOTALL)


def own_styles(module: str) -> str:
    """The style sheet next to the module of a widget."""
    return file_text(Path(module).with_suffix(".tcss"))
