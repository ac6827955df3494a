"""The film of a run as an animated GIF, for places that show no SVG; drawn by Pillow, from the film's own picture.

Pillow's font has neither arrows nor signs, so that letters stand for them.
"""

import io
from xml.etree import ElementTree

from llamagym_tui.errors import UsageError
from llamagym_tui.screens.policy_map.film import CELL, FRAME_S, HELD, ROW

SVG = "{http://www.w3.org/2000/svg}"
INK = "#d6dbe3"
GROUND = "#0e1116"
IN_LETTERS = str.maketrans("←→↑↓▲▼×\N{MINUS SIGN}", "<>^v^vx-")
ANCHORS = {"t": "ls", "l": "ls", "r": "rs"}
"""Which point of a text its place is, by its kind, as Pillow names it; else the middle."""
TITLE = 20
"""Pixels of the title's letters, down."""
LETTERS = 12
"""Pixels of the others."""


def film_gif(film: str) -> bytes:
    """A film, as of `run_film`, as GIF; raises UsageError if Pillow is not installed."""
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError as error:
        raise UsageError(
            "A film as GIF is drawn by Pillow: pip install pillow, or name an .svg file."
        ) from error
    drawn = ElementTree.fromstring(film)
    fonts = {size: ImageFont.load_default(size) for size in (TITLE, LETTERS)}
    width, height = (round(float(each)) for each in drawn.attrib["viewBox"].split()[2:])
    frames = []
    for turn in drawn.findall(f"{SVG}g"):
        frame = Image.new("RGB", (width, height), GROUND)
        brush = ImageDraw.Draw(frame)
        for state in turn.findall(f"{SVG}rect"):
            x, y = float(state.attrib["x"]), float(state.attrib["y"])
            corners = (x, y, x + CELL - 3, y + ROW - 3)
            brush.rounded_rectangle(corners, radius=3, fill=state.attrib["fill"])
        for text in [*drawn.findall(f"{SVG}text"), *turn.findall(f"{SVG}text")]:
            kind = text.attrib["class"]
            brush.text(
                (float(text.attrib["x"]), float(text.attrib["y"])),
                "".join(text.itertext()).translate(IN_LETTERS),
                fill=INK,
                font=fonts[TITLE if kind == "t" else LETTERS],
                anchor=ANCHORS.get(kind, "ms"),
            )
        frames.append(frame)
    held_ms = [round(1000 * FRAME_S)] * len(frames)
    held_ms[-1] *= HELD
    found = io.BytesIO()
    frames[0].save(found, "GIF", save_all=True, append_images=frames[1:], duration=held_ms, loop=0)
    return found.getvalue()
