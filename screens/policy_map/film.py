"""The filmstrip of a policy map as one animated SVG, without script or link; one map is a still picture."""

from collections.abc import Sequence
from html import escape

from textual.color import Color

from llamagym_tui.errors import UsageError
from llamagym_tui.protocol.events import PolicyMapLaidOut
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.returns import smoothing_window
from llamagym_tui.screens.policy_map.mapped_policy import (
    LEVELS,
    MappedCell,
    MappedPolicy,
    policy_text,
    policy_warmth,
    sign,
)
from llamagym_tui.screens.policy_map.screen import describe, legend
from llamagym_tui.screens.widgets.numbers import number
from llamagym_tui.state.run import RunState

MOST_FRAMES = 20
"""Maps that are shown."""
FRAME_S = 0.5
"""Seconds for which a map is shown."""
HELD = 6
"""Maps for whose time the last one is shown."""
WIDTH = 900
"""Pixels of the picture."""
CELL = 36
"""Pixels of a state, across."""
ROW = 20
"""Pixels of a state, down."""
SMALL_CELL = 17
"""Pixels of a state of a small map, across."""
SMALL_ROW = 13
"""Pixels of one, down."""
COLD = Color.parse("#3f74c8")
"""Colour of the first action alone."""
NEUTRAL = Color.parse("#232b38")
"""Colour of a state without a likelier action."""
WARM = Color.parse("#bd7a1e")
"""Colour of the mapped action alone."""
LANDMARKS = {"danger": Color.parse("#9e3532"), "goal": Color.parse("#28844b")}
"""Colours of fields without a state, by what they stand on."""
STYLE = (
    ".film text { font: 12px ui-monospace, monospace; fill: #d6dbe3; text-anchor: middle } .film .l { text-anchor: "
    "start } .film .r { text-anchor: end; opacity: .7 } .film .t { font-size: 20px; text-anchor: start }"
    f".film rect {{ width: {CELL - 2}px; height: {ROW - 2}px; rx: 3px }} .film .p {{ width: 100%; height: 100% }}"
)


def run_film(state: RunState) -> str:
    """The film of a run, with the update and the mean return of each map; UsageError: no map was recorded."""
    film, last = state.film, min(len(state.film), MOST_FRAMES) - 1
    if state.map_layout is None or not film:
        raise UsageError("There is no film of this run: no map of its policy was recorded.")
    shown = [film[round(at * (len(film) - 1) / max(1, last))] for at in range(last + 1)]
    points, captions = state.returns.trailing(smoothing_window(state.returns.episodes)), []
    for mapped in shown:
        ended = max(
            (each.episodes for each in state.history.samples if each.update <= mapped.update),
            default=0,
        )
        means = [
            f" · mean return {number(point.mean_return, 2)}"
            for point in points
            if point.episode <= ended
        ]
        captions.append(f"update {mapped.update:,}{''.join(means[-1:])}")
    return film_svg(
        [MappedPolicy(state.map_layout, each) for each in shown],
        captions,
        f"{state.agent} · {state.model}",
    )


def film_svg(
    policies: Sequence[MappedPolicy], captions: Sequence[str] = ("",), title: str = ""
) -> str:
    """Maps on one layout, one after the other without end, each with its caption."""
    parts, last = [picture_text("t", 16, 28, title)], len(policies) - 1
    turns = list(range(last)) + [last] * HELD
    for at, (policy, caption) in enumerate(zip(policies, captions, strict=True)):
        values = ";".join("1" if turn == at else "0" for turn in turns)
        time = f'dur="{FRAME_S * len(turns):g}s" repeatCount="indefinite" calcMode="discrete" values="{values}"'
        moves = f'<animate attributeName="opacity" {time}/>' if last else ""
        picture, height = _picture(policy, caption, is_still=not last)
        parts.append(f'<g opacity="{int(at == last)}">{moves}{picture}</g>')
    parts.append(picture_text("l", 16, height, legend(policies[0].layout).plain))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="film" viewBox="0 0 {WIDTH} {height + 16}">'
    )
    return f'{head}<style>{STYLE}</style><rect class="p" fill="#0e1116"/>{"".join(parts)}</svg>'


def small_picture(policy: MappedPolicy, title: str) -> tuple[str, int]:
    """The colours of a map, with a sign for the likeliest action in each state, and its height; `WIDTH` / 2 wide.

    A state in which another action is best has an outline.
    """
    layout, x, y, height = policy.layout, 0, 22, 22
    parts = [picture_text("l", 0, 12, title)]
    for place, panel in enumerate(layout.panels):
        width = SMALL_CELL * (len(panel.columns) + 2)
        if x and x + width > WIDTH / 2:
            x, y = 0, height
        for row, name in enumerate([panel.title, *panel.rows]):
            parts.append(
                picture_text("s r", x + 2 * SMALL_CELL - 4, y + SMALL_ROW * row + 10, name)
            )
        for spot, cell in policy.cells.items():
            if spot.panel != place:
                continue
            left = x + SMALL_CELL * (spot.column + 2)
            top = y + SMALL_ROW * (spot.row + 1)
            outline = ' stroke="#ffffff"' if cell.agrees is False else ""
            parts.append(
                f'<rect x="{left + 0.5}" y="{top + 0.5}" width="{SMALL_CELL - 2}" height="{SMALL_ROW - 2}" '
                f'fill="{fill_of(layout, cell)}"{outline}/>'
            )
            parts.append(picture_text("s", left + SMALL_CELL / 2, top + 10, sign(layout, cell)))
        x, height = x + width, max(height, y + SMALL_ROW * (len(panel.rows) + 2))
    return "".join(parts), height


def fill_of(layout: PolicyMapLaidOut, cell: MappedCell) -> str:
    """The colour of a state: cold for the first action, warm for the mapped one, or what its field is."""
    if cell.cell.ground in LANDMARKS:
        return LANDMARKS[cell.cell.ground].hex
    warmth = policy_warmth(layout, cell)
    level = 0.0 if warmth is None else round(2 * LEVELS * warmth) / LEVELS - 1
    return NEUTRAL.blend(COLD if level < 0 else WARM, abs(level)).hex


def _picture(policy: MappedPolicy, caption: str, *, is_still: bool) -> tuple[str, int]:
    """A map, and its height."""
    layout, x, y, height = policy.layout, 0, 62, 62
    parts = [picture_text("l", 16, 50, " · ".join(filter(None, (caption, policy.words))))]
    for place, panel in enumerate(layout.panels):
        width = CELL * (len(panel.columns) + 2)
        if x + width > WIDTH:
            x, y = 0, height
        parts += [
            picture_text("r", x + 68, y + ROW * row + 13, name)
            for row, name in enumerate([panel.title, *panel.rows])
        ]
        parts += [
            picture_text("c", x + CELL * (at + 2.5), y + 13, name)
            for at, name in enumerate(panel.columns)
        ]
        for spot, cell in policy.cells.items():
            if spot.panel == place:
                left = x + CELL * (spot.column + 2)
                top = y + ROW * (spot.row + 1)
                words = f"<title>{escape(one_line(cell.cell.words))}: {escape(describe(policy, cell).plain)}</title>"
                fill = fill_of(layout, cell)
                tip = words if is_still else ""
                parts.append(f'<rect x="{left}" y="{top}" fill="{fill}">{tip}</rect>')
                parts.append(
                    picture_text("", left + CELL / 2, top + 13, policy_text(layout, cell, 4))
                )
        x, height = x + width, max(height, y + ROW * (len(panel.rows) + 2))
    return "".join(parts), height


def picture_text(kind: str, x: float, y: float, text: str) -> str:
    return (
        f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(one_line(text))}</text>'
        if text.strip()
        else ""
    )
