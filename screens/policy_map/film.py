"""The maps of a run as one animated SVG without scripts or links; a single map is a still picture."""

from collections.abc import Sequence
from html import escape

from textual.color import Color
from textual.style import Style

from llamagym_tui.errors import UsageError
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.policy_map.drawing import CellSize, legend, map_line, places_for
from llamagym_tui.screens.policy_map.mapped_policy import MappedCell, MappedPolicy
from llamagym_tui.screens.widgets.numbers import number
from llamagym_tui.state.returns import smoothing_window
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
COLD = Color.parse("#3f74c8")
NEUTRAL = Color.parse("#232b38")
WARM = Color.parse("#bd7a1e")
LANDMARKS = {"danger": Color.parse("#9e3532"), "goal": Color.parse("#28844b")}
STYLE = (
    ".film text { font: 12px ui-monospace, monospace; fill: #d6dbe3 } .film .c { text-anchor: middle } "
    ".film .t { font-size: 20px } .film .p { width: 100%; height: 100% }"
)


def run_film(state: RunState) -> str:
    """The film of a run, with the update and the mean return at each map.

    Raises:
        UsageError: no map was recorded.
    """
    film, last = state.film, min(len(state.film), MOST_FRAMES) - 1
    if state.map_layout is None or not film:
        raise UsageError("There is no film of this run: no map of its policy was recorded.")
    shown = [film[round(at * (len(film) - 1) / max(1, last))] for at in range(last + 1)]
    points = state.returns.trailing(smoothing_window(state.returns.episodes))
    captions = []
    for mapped in shown:
        ended = [each.episodes for each in state.history.samples if each.update <= mapped.update]
        means = [point for point in points if point.episode <= max(ended, default=0)]
        mean = f" · mean return {number(means[-1].mean_return, 2)}" if means else ""
        captions.append(f"update {mapped.update:,}{mean}")
    policies = [MappedPolicy(state.map_layout, each) for each in shown]
    return film_svg(policies, captions, f"{state.agent} · {state.model}")


def film_svg(
    policies: Sequence[MappedPolicy], captions: Sequence[str] = ("",), title: str = ""
) -> str:
    """Maps on one layout, shown one after the other without end, each with its caption."""
    layout = policies[0].layout
    places = places_for(layout, COLUMNS, 10_000, sizes=[CellSize(5, 1)])
    last = len(policies) - 1
    turns = list(range(last)) + [last] * HELD
    parts = [_text("t", 16, 28, title)]
    for at, (policy, caption) in enumerate(zip(policies, captions, strict=True)):
        values = ";".join("1" if turn == at else "0" for turn in turns)
        time = f'dur="{FRAME_S * len(turns):g}s" repeatCount="indefinite" calcMode="discrete" values="{values}"'
        moves = f'<animate attributeName="opacity" {time}/>' if last else ""
        words = " · ".join(filter(None, (caption, policy.words)))
        picture = [_text("l", 16, 50, words)]
        for y in range(places.height):
            x = 2
            for piece in map_line(policy, places, y, fill_of):
                picture.append(_piece(x * LETTER, TOP + y * LINE, piece.text, piece.style))
                x += len(piece.text)
        parts.append(f'<g opacity="{int(at == last)}">{moves}{"".join(picture)}</g>')
    height = TOP + places.height * LINE
    parts.append(_text("l", 16, height + LINE, legend(layout, places.cell.width)))
    box = f'viewBox="0 0 {(places.width + 4) * LETTER} {height + 2 * LINE}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="film" {box}>'
    return f'{head}<style>{STYLE}</style><rect class="p" fill="#0e1116"/>{"".join(parts)}</svg>'


def fill_of(cell: MappedCell, warmth: float | None) -> Style:
    """Cold for the first action, warm for the mapped one, or the colour of the landmark."""
    if cell.cell.ground in LANDMARKS:
        return Style(LANDMARKS[cell.cell.ground])
    if warmth is None:
        return Style(NEUTRAL)
    return Style(NEUTRAL.blend(COLD if warmth < 0.5 else WARM, abs(2 * warmth - 1)))


def _piece(x: int, y: int, text: str, style: Style) -> str:
    if style.background is None:
        return _text("l", x + (len(text) - len(text.lstrip())) * LETTER, y + 14, text)
    width = len(text) * LETTER
    fill = style.background.hex
    rect = f'<rect x="{x}" y="{y}" width="{width - 2}" height="{LINE - 2}" rx="3" fill="{fill}"/>'
    return rect + _text("c", x + width / 2, y + 14, text)


def _text(kind: str, x: float, y: float, text: str) -> str:
    if not text.strip():
        return ""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(one_line(text.strip()))}</text>'
