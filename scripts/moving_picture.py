"""One SVG of screens that Textual has exported: a still picture of one screen, a moving one of several.

Each piece of text and each coloured ground stands in it once, however many frames show it; CSS shows every group of
pieces in its frames. The file needs no script, no font and no other file, so an ``<img>`` plays it. Where motion is not
wanted or not known, the last frame stands still.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from typing import NamedTuple

from rich.cells import cell_len

SVG = "{http://www.w3.org/2000/svg}"
COLUMN, LINE = 12.2, 24.4
"""Units of the export that a column is wide and a line is high."""
BASELINE = 18.5
"""Units of the export from the top of a ground to the line that its text stands on."""
MARGIN = 14
"""Units around the screen."""
JOINED = re.compile("[\u2500-\u257f\u2591-\u259f\u2800-\u28ff]")
"""Signs of lines and shades, which are stretched so that they meet in every font."""
BLOCKS = {
    "▀": (0, 0, 1, 1 / 2),
    "▐": (1 / 2, 0, 1 / 2, 1),
    **{chr(0x2580 + eighths): (0, 1 - eighths / 8, 1, eighths / 8) for eighths in range(1, 9)},
    **{chr(0x2590 - eighths): (0, 0, eighths / 8, 1) for eighths in range(1, 8)},
}
"""What such a sign fills of its cell: x, y, width and height, as shares of the cell."""
FONTS = "ui-monospace,'Cascadia Mono','SF Mono',Menlo,Consolas,'DejaVu Sans Mono',monospace"


class Frame(NamedTuple):
    """A screen in the picture."""

    svg: str
    """As `App.export_screenshot` gives it."""
    seconds: float
    """How long it is shown."""


class Ground(NamedTuple):
    """A coloured rectangle in one line."""

    y: float
    x: float
    width: float
    height: float
    fill: str
    is_block: bool = False
    """Whether the export has it as a sign, as ▆. It lies on the ground of its cell."""


class Text(NamedTuple):
    """A text in one style."""

    y: float
    x: float
    width: float
    style: str
    """Declarations of CSS."""
    text: str


def picture(frames: Sequence[Frame], columns: int, lines: int) -> str:
    """The frames, one after the other without end, as one SVG."""
    shown: dict[Ground | Text, list[int]] = {}
    for at, frame in enumerate(frames):
        for piece in pieces(frame.svg):
            shown.setdefault(piece, []).append(at)
    filled = [piece for piece in shown if isinstance(piece, Ground)]
    blocks = [piece for piece in filled if piece.is_block]
    grounds = [piece for piece in filled if not piece.is_block]
    back = Counter(piece.fill for piece in grounds for _ in shown[piece]).most_common(1)[0][0]
    texts = [piece for piece in shown if isinstance(piece, Text)]
    styles = {style: f"t{at}" for at, style in enumerate({text.style: 0 for text in texts})}
    scenes: dict[tuple[int, ...], str] = {}

    def group(pieces_of: Sequence[Ground] | Sequence[Text]) -> Iterator[str]:
        by_frames: dict[tuple[int, ...], list[str]] = {}
        for piece in pieces_of:
            mark = _ground(piece) if isinstance(piece, Ground) else _text(piece, styles)
            by_frames.setdefault(tuple(shown[piece]), []).append(mark)
        for at, marks in by_frames.items():
            if len(at) == len(frames):
                yield from marks
            else:
                yield f'<g class="{scenes.setdefault(at, f"s{len(scenes)}")}">{"".join(marks)}</g>'

    # Within a frame no piece overlaps another one of its kind.
    body = [*group([piece for piece in grounds if piece.fill != back])]
    body += [*group(blocks), *group(texts)]
    rules = [f".{name}{{{style}}}" for style, name in styles.items()]
    rules += _moves(scenes, [frame.seconds for frame in frames])
    width, height = columns * COLUMN, lines * LINE
    box = f"{-MARGIN} {-MARGIN} {width + 2 * MARGIN:g} {height + 2 * MARGIN:g}"
    size = f'width="{(width + 2 * MARGIN) / 1.5:.0f}" height="{(height + 2 * MARGIN) / 1.5:.0f}"'
    frame_of = (
        f'<rect x="{1 - MARGIN}" y="{1 - MARGIN}" width="{width + 2 * MARGIN - 2:g}"'
        f' height="{height + 2 * MARGIN - 2:g}" rx="10" fill="{back}" stroke="#80808080"/>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="{box}" xml:space="preserve"><style>'
        f"text{{font:20px {FONTS}}}path{{shape-rendering:crispEdges}}{''.join(rules)}</style>\n"
        f"{frame_of}\n" + "\n".join(body) + "\n</svg>\n"
    )


def pieces(svg: str) -> Iterator[Ground | Text]:
    """What an exported screen shows; neighbours of one colour are one ground."""
    root = ET.fromstring(svg)
    style_of = {}
    for style in root.iter(f"{SVG}style"):
        style_of |= dict(re.findall(r"\.([\w-]+-r\d+) \{ (.*?) \}", style.text or ""))
    for screen in root.iter(f"{SVG}g"):
        yield from _grounds(screen.findall(f"{SVG}rect"))
        for each in screen.findall(f"{SVG}text"):
            text = each.text or ""
            if each.get("class") in style_of and text.strip("\xa0 "):
                style = style_of[each.attrib["class"]].strip(";")
                yield from _signs(float(each.attrib["x"]), float(each.attrib["y"]), style, text)


def _signs(x: float, y: float, style: str, text: str) -> Iterator[Ground | Text]:
    """A text, whose blocks are rectangles: those meet in every font."""
    fill = re.search(r"fill: (#\w+)", style)
    for sign, same in groupby(text, lambda sign: sign if sign in BLOCKS and fill else ""):
        part = "".join(same)
        width = cell_len(part) * COLUMN
        if not sign or fill is None:
            if part.strip("\xa0 "):
                yield Text(y, x, round(width, 1), style, part)
        else:
            left, top, wide, high = BLOCKS[sign]
            # Signs as wide as their cells are one rectangle.
            starts, across = ([0], width) if wide == 1 else (range(len(part)), wide * COLUMN)
            for start in starts:
                at = (y - BASELINE + top * LINE, x + (start + left) * COLUMN)
                yield Ground(*at, across, high * LINE, fill[1], is_block=True)
        x += width


def _grounds(rectangles: Sequence[ET.Element]) -> Iterator[Ground]:
    last: Ground | None = None
    for each in rectangles:
        x, y, width = (float(each.attrib[name]) for name in ("x", "y", "width"))
        ground = Ground(y, x, width, LINE, each.attrib["fill"])
        if last is None:
            last = ground
        elif (last.y, last.fill) == (y, ground.fill) and abs(last.x + last.width - x) < 0.1:
            last = last._replace(width=round(last.width + width, 1))
        else:
            yield last
            last = ground
    if last is not None:
        yield last


def _ground(ground: Ground) -> str:
    # A little wider than its columns, and as the export a little higher than its line: no seam is seen between two.
    across, down = ground.width + 0.3, ground.height + 0.3
    shape = f"M{ground.x:.5g} {ground.y - 1.5:.5g}h{across:.4g}v{down:.4g}h-{across:.4g}z"
    return f'<path fill="{ground.fill}" d="{shape}"/>'


def _text(text: Text, styles: dict[str, str]) -> str:
    fitted = ' lengthAdjust="spacingAndGlyphs"' if JOINED.search(text.text) else ""
    return (
        f'<text class="{styles[text.style]}" x="{text.x:g}" y="{text.y - 1.5:g}" textLength="{text.width:g}"{fitted}>'
        f"{escape(text.text, quote=False)}</text>"
    )


def _moves(scenes: dict[tuple[int, ...], str], seconds: Sequence[float]) -> Iterator[str]:
    """The rules that show the pieces of each scene in its frames."""
    total = sum(seconds)
    starts = [100 * sum(seconds[:at]) / total for at in range(len(seconds))]
    last = len(seconds) - 1
    if not scenes:
        return
    for at, name in scenes.items():
        visible = [number in at for number in range(len(seconds))]
        steps = ""
        for number, start in enumerate(starts):
            if number == 0 or visible[number] != visible[number - 1]:
                steps += f"{start:.4g}%{{visibility:{'visible' if visible[number] else 'hidden'}}}"
        still = "" if last in at else "visibility:hidden;"
        yield f"@keyframes {name}{{{steps}}}.{name}{{{still}animation:{name} {total:g}s step-end infinite}}"
    yield "@media(prefers-reduced-motion:reduce){g{animation:none!important}}"
