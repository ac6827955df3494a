"""Themes, and colours that can be read in all of them.

`readable` changes the variables of a theme as little as a contrast of 4.5 to 1 needs, and adds our own.
Source: WCAG 2.2, success criterion 1.4.3.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from textual.app import App
from textual.color import Color
from textual.content import Content
from textual.style import Style
from textual.theme import Theme

from llamagym_tui.protocol.literal import literal
from llamagym_tui.user_files import file_text

ASIDE = "$aside"
"""Style of less important text."""
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
"""The default theme."""
LEAST_CONTRAST = 4.5
GROUNDS = ("background", "surface", "panel")
"""Variables of a theme that texts stand on."""
TINTED = {
    "selected": ("primary", 0.2),
    "selected-aside": ("primary", 0.1),
    "ground-error": ("error", 0.2),
    "ground-warning": ("warning", 0.15),
    "ground-note": ("accent", 0.14),
}
"""Our grounds of texts: the background with a share of a colour."""
CHART = {"chart-fill": 0.3, "chart-band": 0.13}
"""Colours of a chart's areas: the background with a share of the primary colour."""
COLOURED = ("primary", "accent", "success", "warning", "error")
"""Variables of coloured texts."""
ASIDE_SHARE = 0.6
"""Share of the foreground in less important text, where that can be read."""
STEP = 0.04
"""Share by which a colour is moved at a time."""
FIELDS = {
    "floor": ("#808080", 0.2),
    "ice": ("#3d9be0", 0.5),
    "danger": ("#d9453f", 0.7),
    "goal": ("#2fa35c", 0.8),
    "wall": ("#808080", 0.7),
    "thing": ("#a05fe0", 0.6),
    "player": ("#f2b632", 1.0),
    "card": ("#ffffff", 0.9),
    "red card": ("#ffffff", 0.9),
    "back": ("#2f6fd0", 0.9),
}
"""Fields of drawings and maps, by the names of `llamagym_tui.game.pieces`: the background with a share of a colour."""
INKS = {"red card": ("#b3202a", "ansi_red")}
"""The text on a ground where it is neither black nor white: its colour, and the terminal's own."""
TERMINAL_FIELDS = {
    "ice": "ansi_cyan",
    "danger": "ansi_red",
    "goal": "ansi_green",
    "wall": "ansi_bright_black",
    "thing": "ansi_magenta",
    "player": "ansi_yellow",
    "card": "ansi_white",
    "red card": "ansi_white",
    "back": "ansi_blue",
}
"""The same in a terminal's own colours; the floor has none."""


def readable(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables of a theme and ours, with texts that can be read on each ground."""
    found = dict(variables)
    background = Color.parse(variables["background"])
    if background.ansi is not None:
        found["aside"] = f"{variables['foreground']} 60%"
        # A share of one of the terminal's own colours is the whole of it, and its texts would vanish.
        found |= dict.fromkeys(TINTED, variables["background"])
        return found | {"chart-fill": variables["secondary"], "chart-band": variables["background"]}
    for name, (tint, share) in FIELDS.items():
        found[f"field-{name}"] = background.blend(Color.parse(tint), share).hex
    for name, share in CHART.items():
        found[name] = background.blend(Color.parse(variables["primary"]), share).hex
    grounds = [Color.parse(variables[name]) for name in GROUNDS]
    for name, (tint, share) in TINTED.items():
        ground = background.blend(Color.parse(variables[tint]), share)
        found[name] = ground.hex
        grounds.append(ground)
    for name in ("foreground", *COLOURED, *(f"text-{name}" for name in COLOURED)):
        found[name] = _moved(Color.parse(variables[name]), text_on(background), grounds).hex
    foreground = Color.parse(found["foreground"])
    aside = background.blend(foreground, ASIDE_SHARE)
    found["aside"] = _moved(aside, foreground, grounds).hex
    for name in ("text-muted", "text-disabled"):
        found[name] = found["aside"]
    for name in ("block-cursor", "input-selection"):
        found[f"{name}-background"] = found["selected"]
        found[f"{name}-foreground"] = found["foreground"]
    found["block-cursor-blurred-background"] = found["selected-aside"]
    found["block-cursor-blurred-foreground"] = found["foreground"]
    found["block-hover-background"] = found["selected-aside"]
    found["screen-selection-background"] = found["selected"]
    return found


def text_on(ground: Color) -> Color:
    """Black or white, whichever has the higher contrast to an opaque colour."""
    return max((Color(0, 0, 0), Color(255, 255, 255)), key=lambda text: contrast(text, ground))


def contrast(one: Color, other: Color) -> float:
    """The contrast of two opaque colours, from 1 to 21."""
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(color: Color) -> float:
    red, green, blue = (
        channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4
        for channel in color.normalized
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _moved(color: Color, end: Color, grounds: Sequence[Color]) -> Color:
    """A colour, moved towards another until it can be read on all grounds."""
    share = 0.0
    moved = color
    while share < 1.0 and min(contrast(moved, ground) for ground in grounds) < LEAST_CONTRAST:
        share = min(1.0, share + STEP)
        moved = color.blend(end, share)
    return moved


def ground_style(app: App[object], ground: str) -> Style:
    """The colour of a field and a text that can be read on it; no style for an unknown name."""
    if app.native_ansi_color:
        color = TERMINAL_FIELDS.get(ground)
        _, ink = INKS.get(ground, ("", "ansi_black"))
        return Style(Color.parse(color), Color.parse(ink)) if color else Style()
    color = app.theme_variables.get(f"field-{ground}")
    if color is None:
        return Style()
    if ground in INKS:
        return Style(Color.parse(color), Color.parse(INKS[ground][0]))
    return Style(Color.parse(color), text_on(Color.parse(color)))


def drawing_content(
    app: App[object],
    text: str,
    grounds: Iterable[tuple[int, int, str]],
) -> Content:
    """A drawing as literal text on the colours of its fields."""
    content = Content(literal(text))
    for start, stop, ground in grounds:
        if 0 <= start < stop <= len(text):
            content = content.stylize(ground_style(app, ground), start, stop)
    return content


def heading(badge: str, title: str, rest: str, color: str = "$accent") -> Content:
    """The top row of a screen: a badge, the title, and what is less important."""
    return Content.assemble(
        (f" {badge} ", f"bold $background on {color}"),
        (f" {title}" if title else "", "bold"),
        (rest, ASIDE),
    )


def self_contained(svg: str) -> str:
    """A picture without links to other hosts: no web fonts, no credits."""
    return re.sub(r"@font-face\s*\{[^}]*\}|<!--.*?-->", "", svg, flags=re.DOTALL)


def own_styles(module: str) -> str:
    """The style sheet next to the module of a widget."""
    return file_text(Path(module).with_suffix(".tcss"))
