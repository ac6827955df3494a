"""256 colours in place of 16 million: each becomes the nearest one that means the same.

A terminal that knows 256 colours gets from Textual what rounding each channel gives, by which a dark blue may turn
purple and a selected row teal. Here the nearest colour is looked for by the eye's measure, OKLab, in which another hue
counts more than a paler colour; and a text that could be read on its ground still can.

Source: Björn Ottosson, A perceptual color space for image processing (2020).
"""

import math
from functools import lru_cache
from typing import NamedTuple

from rich.color import Color as RichColor
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter

from llamagym_tui.screens.widgets.contrast import LEAST_CONTRAST, contrast, linear

LEVELS = (0, 95, 135, 175, 215, 255)
"""Values that a channel has in the 6 × 6 × 6 cube of the 256 colours."""
FIRST = 16
"""Number of its first colour; those before it are the terminal's own."""
HUE = 3.0
"""How much more a difference in hue counts than one in lightness."""
CHROMA = 1.5
"""How much more a difference in chroma counts."""
LARGEST_TURN = math.radians(20)
"""Angle between two hues from which on they have different names: a grey is nearer than another hue."""
GREY = 0.02
"""Chroma below which a colour has no hue."""


class Lab(NamedTuple):
    """A colour in OKLab."""

    lightness: float
    a: float
    b: float

    @property
    def chroma(self) -> float:
        return float((self.a**2 + self.b**2) ** 0.5)


def lab(color: Color) -> Lab:
    """An opaque colour in OKLab."""
    red, green, blue = linear(color)
    long = (0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue) ** (1 / 3)
    medium = (0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue) ** (1 / 3)
    short = (0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue) ** (1 / 3)
    return Lab(
        0.2104542553 * long + 0.7936177850 * medium - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * medium + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * medium - 0.8086757660 * short,
    )


def _difference(one: Lab, other: Lab) -> float:
    """How far two colours look apart; infinitely far where one has a hue of another name."""
    if min(one.chroma, other.chroma) > GREY:
        turn = abs(math.atan2(one.b, one.a) - math.atan2(other.b, other.a))
        if min(turn, math.tau - turn) > LARGEST_TURN:
            return math.inf
    chroma = one.chroma - other.chroma
    apart = (one.a - other.a) ** 2 + (one.b - other.b) ** 2
    hue = max(0.0, apart - chroma**2)
    return (one.lightness - other.lightness) ** 2 + CHROMA * chroma**2 + HUE * hue


def _palette() -> dict[int, Color]:
    cube = [Color(red, green, blue) for red in LEVELS for green in LEVELS for blue in LEVELS]
    greys = [Color(8 + 10 * step, 8 + 10 * step, 8 + 10 * step) for step in range(24)]
    return dict(enumerate([*cube, *greys], FIRST))


PALETTE = _palette()
"""The colours from the 16th on, by their numbers."""
LABS = {number: lab(color) for number, color in PALETTE.items()}


@lru_cache(maxsize=4096)
def nearest(color: Color) -> int:
    """The number of the colour among the 256 that comes nearest to an opaque one."""
    wanted = lab(color)
    return min(LABS, key=lambda number: _difference(LABS[number], wanted))


@lru_cache(maxsize=4096)
def nearest_on(color: Color, ground: Color) -> int:
    """The number of the nearest colour for a text on one of the 256 as its ground, if it can be read there at all."""
    wanted = lab(color)
    legible = [
        number for number, each in PALETTE.items() if contrast(each, ground) >= LEAST_CONTRAST
    ]
    return min(legible or LABS, key=lambda number: _difference(LABS[number], wanted))


class FewColours(LineFilter):
    """The colours of each line as those of 256 that come nearest."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            Segment(text, None if style is None else _in_few(style), control)
            for text, style, control in segments
        ]


@lru_cache(maxsize=4096)
def _in_few(style: Style) -> Style:
    ground, text = _opaque(style.bgcolor), _opaque(style.color)
    found = Style()
    if ground is not None:
        found += Style(bgcolor=RichColor.from_ansi(nearest(ground)))
    if text is not None:
        number = nearest(text)
        if ground is not None and contrast(text, ground) >= LEAST_CONTRAST:
            number = nearest_on(text, PALETTE[nearest(ground)])
        found += Style(color=RichColor.from_ansi(number))
    return style + found


def _opaque(color: RichColor | None) -> Color | None:
    """A colour by its channels; None: the terminal's own, or none."""
    if color is None or color.triplet is None:
        return None
    return Color(*color.triplet)
