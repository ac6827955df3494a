"""The maps of a run as one animated SVG without scripts or links; a single map is a still picture."""

from collections.abc import Sequence
from html import escape

from msgspec.structs import replace
from textual.color import Color
from textual.style import Style

from llamagym_tui.errors import UsageError
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.policy_map.drawing import (
    CellSize,
    Piece,
    legend,
    map_line,
    places_for,
    shaded,
)
from llamagym_tui.screens.policy_map.mapped_policy import MappedCell, MappedPolicy, Spot
from llamagym_tui.state.returns import thinned
from llamagym_tui.state.run import RunState

MOST_FRAMES = 20
FRAME_S = 0.5
"""Seconds for which a map is shown."""
HELD = 6
"""Frames for which the last map stays."""
COLUMNS = 112
LETTER = 8
"""Pixels of a column of text."""
LINE = 20
"""Pixels of a line of text."""
TOP = 62
"""Pixels above the map."""
NEUTRAL = Color.parse("#232b38")
LANDMARKS = {"danger": Color.parse("#9e3532"), "goal": Color.parse("#28844b")}
STYLE = ".film text { font: 13px ui-monospace, monospace; fill: #d6dbe3 } .film rect { rx: 3px }"


def run_film(state: RunState) -> str:
    """The film of a run, with the update of each map.

    Raises:
        UsageError: no map was recorded.
    """
    if state.map_layout is None or not state.film:
        raise UsageError("There is no film of this run: no map of its policy was recorded.")
    first, *later = state.film
    shown = [first, *thinned(later, MOST_FRAMES - 1)]
    captions = [f"update {mapped.update:,}" for mapped in shown]
    policies = [MappedPolicy(state.map_layout, each) for each in shown]
    return film_svg(policies, captions, f"{state.agent} · {state.model}")


def film_svg(policies: Sequence[MappedPolicy], captions: Sequence[str], title: str = "") -> str:
    """Maps on one layout, shown one after the other without end, each with its caption."""
    layout = replace(policies[0].layout, shows_one=False)
    places = places_for(layout, COLUMNS, 10_000, sizes=[CellSize(5, 1)])
    last = len(policies) - 1
    turns = list(range(last)) + [last] * HELD
    frames = []
    for at, (policy, caption) in enumerate(zip(policies, captions, strict=True)):
        values = ";".join("1" if turn == at else "0" for turn in turns)
        time = f'dur="{FRAME_S * len(turns):g}s" repeatCount="indefinite" calcMode="discrete" values="{values}"'
        moves = f'<animate attributeName="opacity" {time}/>' if last else ""
        picture = _text(2, 50, " · ".join(filter(None, (caption, policy.words))))
        for y in range(places.height):
            x = 2
            for piece in map_line(policy, places, y, fill_of):
                picture += _piece(x, TOP + y * LINE, piece)
                x += len(piece.text)
        frames.append(f'<g opacity="{int(at == last)}">{moves}{picture}</g>')
    height = TOP + places.height * LINE
    signs = ""
    x = 2
    for text, color in legend(layout):
        signs += _text(x, height + LINE, text, color)
        x += len(text)
    box = f'viewBox="0 0 {(places.width + 4) * LETTER} {height + 2 * LINE}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="film" {box}><style>{STYLE}</style>'
        f'<rect width="100%" height="100%" fill="#0e1116"/>{_text(2, 28, title)}{"".join(frames)}{signs}</svg>'
    )


def fill_of(spot: Spot, cell: MappedCell, warmth: float | None) -> Style:
    """Cold for the first action, warm for the mapped one, or the colour of the landmark."""
    if cell.cell.ground in LANDMARKS:
        return Style(LANDMARKS[cell.cell.ground])
    return shaded(NEUTRAL, 0.5 if warmth is None else warmth)


def _piece(column: int, y: int, piece: Piece) -> str:
    """A piece of a map: its ground, if it has one, and its text."""
    ink = piece.style.foreground
    text = _text(column, y + 14, piece.text, ink.hex if ink is not None else "")
    if piece.style.background is None:
        return text
    size = f'width="{len(piece.text) * LETTER - 2}" height="{LINE - 2}"'
    return f'<rect x="{column * LETTER}" y="{y}" {size} fill="{piece.style.background.hex}"/>{text}'


def _text(column: int, y: int, text: str, ink: str = "") -> str:
    if not text.strip():
        return ""
    fill = f' style="fill: {ink}"' if ink else ""
    blanks = len(text) - len(text.lstrip())
    x = (column + blanks) * LETTER
    return f'<text x="{x}" y="{y}"{fill}>{escape(one_line(text.strip()))}</text>'
