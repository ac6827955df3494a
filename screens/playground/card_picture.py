"""A run as something to send: one picture, and the same in words. Both say how to do it again.

The picture is an SVG that names no font of its own, loads nothing and has no script, so that it looks the same in a
browser, in a README and where a library draws it.
"""

from html import escape
from textwrap import wrap
from typing import Any

from llamagym_tui.protocol.events import PolicyMapped
from llamagym_tui.protocol.literal import literal, one_line
from llamagym_tui.screens.playground.curve_picture import chart_of
from llamagym_tui.screens.playground.figures import first_sight
from llamagym_tui.screens.playground.reproduction import known_command
from llamagym_tui.screens.policy_map.film import WIDTH, picture_text, small_picture
from llamagym_tui.screens.policy_map.mapped_policy import MappedPolicy
from llamagym_tui.screens.policy_map.screen import legend, why_no_map
from llamagym_tui.screens.widgets.numbers import baselines, plain
from llamagym_tui.state.run import RunState

EDGE = 18
"""Pixels around everything."""
LINE = 18
"""Pixels of a line of text, down."""
LETTERS = 116
"""Characters of a line of text."""
MOST_LINES = 12
"""Lines of the prompt that are shown."""
CHART = 348
"""Pixels of the chart, down."""
STYLE = (
    ".card text { font: 12px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace; fill: #d6dbe3; "
    "text-anchor: middle } .card .l { text-anchor: start } .card .r { text-anchor: end; fill: #9aa4b2 } "
    ".card .t { font-size: 20px; font-weight: bold; text-anchor: start } .card .s { font-size: 10px } "
    ".card .h { fill: #7db4ff; font-weight: bold; text-anchor: start } "
    ".card .w { fill: #e8bf6a; text-anchor: end } .card polyline { fill: none } .axis { stroke: #2b3545 } "
    ".curve { stroke: #7db4ff; stroke-width: 2 } .band { fill: #7db4ff; opacity: .2 } "
    ".level { stroke: #e8bf6a; stroke-dasharray: 6 4 } .mark { stroke: #c9a7ff; stroke-dasharray: 2 3 }"
)


def card_text(state: RunState) -> str:
    """Name, sentence, mean return, prompt and command of a run, in lines."""
    lines = [f"{state.agent} · {state.model}", first_sight(state), earned_text(state)]
    lines += [f"prompt: {literal(_prompt(state))}", known_command(state)]
    return "\n".join(filter(None, lines))


def card_svg(state: RunState) -> str:
    """The card as a picture: sentence, curve with its axes, first and last map, prompt, command."""
    parts = [picture_text("t", EDGE, 34, f"{state.agent} · {state.model}")]
    height = 42
    for text in (first_sight(state), earned_text(state)):
        height = _lines(parts, text, height)
    chart = chart_of(state)
    if chart is None:
        height = _lines(parts, "There were too few episodes for a curve.", height + LINE)
    else:
        scale = (WIDTH - 2 * EDGE) / 936
        place = f"translate({EDGE},{height + 10}) scale({scale:.4f})"
        parts.append(f'<g transform="{place}">{_curve(chart)}</g>')
        height += 10 + round(CHART * scale)
    height = _maps(parts, state, height + LINE)
    height = _heading(parts, f"prompt v{state.prompt_version}", height)
    height = _lines(parts, _prompt(state) or "(none)", height, most=MOST_LINES)
    height = _heading(parts, "to do it again", height)
    height = _lines(parts, known_command(state), height) + EDGE
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="card" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}">'
    )
    ground = f'<rect width="{WIDTH}" height="{height}" rx="10" fill="#0e1116"/>'
    return f"{head}<style>{STYLE}</style>{ground}{''.join(parts)}</svg>"


def earned_text(state: RunState) -> str:
    """The mean return with its interval, between the baselines."""
    mean = state.recent_mean
    if mean is None:
        return ""
    known = ", ".join(f"{name} {plain(value)}" for name, value in baselines(state).items())
    between = f" ({known})" if known else ""
    return (
        f"mean return {mean.text} over the last {mean.episodes:,} of {state.episodes:,} episodes{between}; "
        f"{state.updates:,} updates"
    )


def first_and_last(state: RunState) -> list[PolicyMapped]:
    """Of a run's maps both ends, or the only one."""
    film = state.film
    return [film[0]] if len(film) == 1 else [film[0], film[-1]]


def _prompt(state: RunState) -> str:
    return state.system_prompt or ""


def _heading(parts: list[str], text: str, height: int) -> int:
    parts.append(picture_text("h", EDGE, height + 26, text))
    return height + 28


def _lines(parts: list[str], text: str, height: int, most: int | None = None) -> int:
    """Add a text below a height; returns the height below it."""
    lines = [
        line
        for paragraph in literal(text).splitlines()
        for line in wrap(paragraph, LETTERS, break_on_hyphens=False) or [""]
    ]
    if most is not None and len(lines) > most:
        lines = [*lines[: most - 1], "…"]
    for line in lines:
        height += LINE
        parts.append(picture_text("l", EDGE, height, line))
    return height


def _maps(parts: list[str], state: RunState, height: int) -> int:
    """Add the first and the last map, beside each other; returns the height below them."""
    if state.map_layout is None or not state.film:
        return _lines(parts, why_no_map(state), height)
    lowest = 0
    for at, mapped in enumerate(first_and_last(state)):
        policy = MappedPolicy(state.map_layout, mapped)
        count = f" · {policy.count.agreeing:,} of {policy.count.states:,}"
        title = f"after update {mapped.update:,}{count if policy.count.states else ''}"
        picture, high = small_picture(policy, title)
        left = EDGE + at * (WIDTH // 2)
        parts.append(f'<g transform="translate({left},{height})">{picture}</g>')
        lowest = max(lowest, high)
    signs = legend(state.map_layout).plain.partition("×")[0].strip(" ·")
    return _lines(parts, f"{signs} · outlined: another action is best", height + lowest - LINE)


def _curve(chart: dict[str, Any]) -> str:
    at, first, last, low, high = (chart[key] for key in ("at", "first", "last", "low", "high"))

    def line(kind: str, places: list[tuple[float, float]], shape: str = "polyline") -> str:
        points = " ".join(f"{x:g},{y:g}" for x, y in (at(*place) for place in places))
        return f'<{shape} class="{kind}" points="{points}"/>'

    def label(kind: str, text: str, place: tuple[float, float], dx: int, dy: int) -> str:
        x, y = at(*place)
        return picture_text(kind, x + dx, y + dy, text)

    parts = [line("band", chart["band"], "polygon")]
    for value, text in chart["ups"]:
        parts += [line("axis", [(first, value), (last, value)])]
        parts += [label("r", text, (first, value), -8, 4)]
    for text, value in chart["levels"]:
        parts += [line("level", [(first, value), (last, value)])]
        parts += [label("w", text, (last, value), 0, -4)]
    parts += [label("", text, (episode, low), 0, 18) for episode, text in chart["acrosses"]]
    for number, mark in chart["marks"]:
        parts += [line("mark", [(mark.episode, low), (mark.episode, high)])]
        tip = f"<title>{escape(one_line(mark.label))}</title>"
        parts += [
            label("", str(number), (mark.episode, high), 0, -8).replace("</text>", f"{tip}</text>")
        ]
    return "".join([*parts, line("curve", chart["curve"])])
