"""Draws what each library's Blackjack earns after so many minutes: ``python -m scripts.return_chart``.

It writes ``docs/pictures/returns.svg``. The points are those of a table in ``benchmarks/RESULTS.md`` and no others;
lines only join them. Colours are those of Okabe and Ito, each with a sign of its own; the page's ground, light or dark,
shows through.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "RESULTS.md"
PICTURE = ROOT / "docs" / "pictures" / "returns.svg"
TABLE = "| bundled model, Blackjack, medians of three seeds |"
"""How the table's first line begins; a cell is greedy / sampled play, of which the second is drawn."""
BEST, LOWEST, MINUTES = -0.0466, -0.2, 10
"""Optimal play by dynamic programming, and the ends of the axes."""
WIDTH, HEIGHT = 830, 360
LEFT, RIGHT, TOP, BOTTOM = 70, 215, 40, 50
LOOKS = (("#0072b2", "circle"), ("#d55e00", "square"), ("#009e73", "diamond"), ("#cc79a7", "cross"))
STYLE = (
    "text{font:15px system-ui,sans-serif;fill:#1f2328}.aside{fill:#59636e}.grid{stroke:#59636e;stroke-opacity:.3}"
    ".best{stroke:#59636e;stroke-dasharray:6 5;stroke-width:1.5}.line{fill:none;stroke-width:3}.l0{stroke-width:4}"
    "@media(prefers-color-scheme:dark){text{fill:#f0f6fc}.aside{fill:#9198a1}.best,.grid{stroke:#9198a1}"
    ".l0{filter:brightness(1.6)}}"
)


class Curve(NamedTuple):
    """A row of the table."""

    library: str
    points: list[tuple[float, float]]
    """Minutes, and the mean return of sampled play."""


def curves(page: str) -> list[Curve]:
    """The rows of the table in the page."""
    lines = page[page.index(TABLE) :].split("\n\n")[0].splitlines()
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    found = []
    for library, *cells in rows:
        points = []
        for minutes, cell in zip(head[1:], cells, strict=True):
            if minutes.endswith(" min"):
                sampled = cell.split("/")[1].strip().replace("−", "-")
                points.append((float(minutes.removesuffix(" min")), float(sampled)))
        found.append(Curve(library, points))
    return found


def x_of(minutes: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * minutes / MINUTES


def y_of(value: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * value / LOWEST


def chart(drawn: list[Curve]) -> str:
    """The curves as an SVG."""
    parts = []
    for tenths in range(0, 21, 5):
        value = -tenths / 100
        label = f"{value:.2f}".replace("-", "−")
        parts.append(f'<path class="grid" d="M{LEFT} {y_of(value):g}H{WIDTH - RIGHT}"/>')
        parts.append(_text(LEFT - 10, y_of(value) + 5, label, "aside", "end"))
    for minutes in (1, 2, 5, 10):
        parts.append(_text(x_of(minutes), HEIGHT - BOTTOM + 24, str(minutes), "aside", "middle"))
    parts.append(
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, "minutes of one core", "aside", "middle")
    )
    parts.append(_text(10, 20, "mean return in Blackjack"))
    parts.append(f'<path class="best" d="M{LEFT} {y_of(BEST):g}H{WIDTH - RIGHT}"/>')
    parts.append(_text(LEFT + 8, y_of(BEST) - 7, "best possible −0.047", "aside"))
    for at, (curve, (colour, sign)) in enumerate(zip(drawn, LOOKS, strict=True)):
        places = [(x_of(minutes), y_of(value)) for minutes, value in curve.points]
        path = "M" + "L".join(f"{x:g} {y:.1f}" for x, y in places)
        signs = "".join(_sign(sign, x, y) for x, y in places)
        parts.append(
            f'<g class="l{at}" stroke="{colour}" fill="{colour}"><path class="line" d="{path}"/>{signs}</g>'
        )
        x, y = places[-1]
        last = f"{curve.points[-1][1]:.3f}".replace("-", "−")
        name = "llamagym-tui" if curve.library == "this" else curve.library.split(",")[0]
        parts.append(_text(x + 14, y + 5, f"{name} {last}"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"><style>{STYLE}</style>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def _sign(name: str, x: float, y: float) -> str:
    shapes = {
        "circle": "m-6 0a6 6 0 1 0 12 0a6 6 0 1 0 -12 0z",
        "square": "m-5 -5h10v10h-10z",
        "diamond": "m0 -7l7 7l-7 7l-7 -7z",
        "cross": "m-5 -5l10 10m0 -10l-10 10",
    }
    return f'<path stroke-width="3" d="M{x:g} {y:.1f}{shapes[name]}"/>'


def main() -> None:
    """Write the picture."""
    PICTURE.write_text(chart(curves(RESULTS.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
