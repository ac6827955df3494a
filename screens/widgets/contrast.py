"""Colours that can be read: in every theme a text has at least the contrast of 4.5 to 1 to its ground.

`readable` changes the variables of a theme as little as that takes, and adds those of our own. Themes of the terminal's
own colours stay as they are: what these look like is not known here.

Source: WCAG 2.2, success criterion 1.4.3.
"""

from collections.abc import Mapping, Sequence

from textual.color import Color

LEAST_CONTRAST = 4.5
"""Contrast of a text to its ground, at least."""
GROUNDS = ("background", "surface", "panel")
"""Variables of what texts stand on."""
TINTED = {
    "selected": ("primary", 0.2),
    "selected-aside": ("primary", 0.1),
    "ground-match": ("warning", 0.2),
    "ground-error": ("error", 0.2),
    "ground-warning": ("warning", 0.15),
    "ground-note": ("accent", 0.14),
}
"""Other grounds of texts, the background with a part of a colour: rows under a cursor, with the focus and without;
matches of a search; sentences above a run."""
FIELDS = {
    "floor": ("#808080", 0.2),
    "ice": ("#3d9be0", 0.5),
    "danger": ("#d9453f", 0.7),
    "goal": ("#2fa35c", 0.8),
    "wall": ("#808080", 0.7),
    "thing": ("#a05fe0", 0.6),
    "player": ("#f2b632", 1.0),
    "card": ("#ffffff", 0.9),
    "back": ("#2f6fd0", 0.9),
}
"""The fields of drawings and maps, by what they stand on: the background with a part of a colour, which is the same in
every theme, as ice is blue wherever one is."""
COLOURED = ("primary", "accent", "success", "warning", "error")
"""Variables of coloured texts; words in the background's colour stand on them, too."""
ASIDE = 0.6
"""How much of the foreground a less important text has, where that can be read."""
STEP = 0.04
"""How far a colour is moved at a time."""


def readable(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables of a theme, with texts that can be read on each of its grounds, and with those of ours: `aside`,
    less important texts; the grounds in `TINTED`; and the ends of a map's scale, on which texts are black or white."""
    found = {
        **variables,
        "map-cold": variables["secondary"],
        "map-warm": variables["warning"],
    }
    background = Color.parse(variables["background"])
    if background.ansi is not None:
        found["aside"] = f"{variables['foreground']} 60%"
        # A part of one of the terminal's own colours is the whole of it, and its texts would vanish.
        return found | dict.fromkeys(TINTED, variables["background"])
    for name, (tint, share) in FIELDS.items():
        found[f"field-{name}"] = background.blend(Color.parse(tint), share).hex
    grounds = [Color.parse(variables[name]) for name in GROUNDS]
    for name, (tint, share) in TINTED.items():
        ground = background.blend(Color.parse(variables[tint]), share)
        found[name] = ground.hex
        grounds.append(ground)
    end = text_on(background)
    texts = ["foreground", *COLOURED, *(f"text-{name}" for name in COLOURED)]
    for name in texts:
        found[name] = _moved(Color.parse(variables[name]), end, grounds).hex
    foreground = Color.parse(found["foreground"])
    found["aside"] = _moved(background.blend(foreground, ASIDE), foreground, grounds).hex
    return found | {
        # Those of Textual's own widgets.
        "text-muted": found["aside"],
        "text-disabled": found["aside"],
        "block-cursor-background": found["selected"],
        "block-cursor-foreground": found["foreground"],
        "block-cursor-blurred-background": found["selected-aside"],
        "block-cursor-blurred-foreground": found["foreground"],
        "block-hover-background": found["selected-aside"],
        "input-selection-background": found["selected"],
        "input-selection-foreground": found["foreground"],
        "screen-selection-background": found["selected"],
    }


def text_on(ground: Color) -> Color:
    """Black or white, whichever can be read better on an opaque colour: one of the two has 4.5 to 1 at least."""
    return max((Color(0, 0, 0), Color(255, 255, 255)), key=lambda text: contrast(text, ground))


def contrast(one: Color, other: Color) -> float:
    """The contrast of two opaque colours, from 1 to 21."""
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(color: Color) -> float:
    red, green, blue = linear(color)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def linear(color: Color) -> tuple[float, float, float]:
    """The channels of a colour as amounts of light, from 0 to 1."""
    red, green, blue = (
        channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4
        for channel in color.normalized
    )
    return red, green, blue


def _moved(color: Color, end: Color, grounds: Sequence[Color]) -> Color:
    """A colour, as far on the way to another one as it takes to be read on all grounds."""
    share = 0.0
    moved = color
    while share < 1.0 and min(contrast(moved, ground) for ground in grounds) < LEAST_CONTRAST:
        share = min(1.0, share + STEP)
        moved = color.blend(end, share)
    return moved
