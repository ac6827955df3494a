"""How the app looks: theme, style sheets of widgets, colours of charts, exported pictures."""

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec
from textual.theme import Theme

from llamagym_tui.user_files import file_text

ASIDE = "$foreground 60%"
"""Style of text that is less important."""

THEMES = [
    Theme(**each) for each in msgspec.json.decode(file_text(Path(__file__).with_suffix(".json")))
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
