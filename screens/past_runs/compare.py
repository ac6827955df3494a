"""Two past runs compared: curves of mean return in one chart, results, and the settings that differ.

Each can stand for the runs that differ from it in seed only: their mean, with its standard error over the seeds.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import zip_longest

from msgspec.structs import replace
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from llamagym_tui.protocol.literal import one_line
from llamagym_tui.returns import (
    CurvePoint,
    averaged,
    evaluated_return,
    mean_return,
    plus_minus,
    thinned,
    with_unit,
)
from llamagym_tui.screens.past_runs.run_table import OF_A_SEED, RunRow, played_text, seeds_of
from llamagym_tui.screens.widgets.chart_cells import Curve, Drawing, baseline_levels
from llamagym_tui.screens.widgets.key_bar import KeyBar
from llamagym_tui.screens.widgets.numbers import plain
from llamagym_tui.screens.widgets.plot import Plot
from llamagym_tui.screens.widgets.sizes import TooSmall
from llamagym_tui.state.run_summary import differences

NAMES = ("A", "B")
STYLES = ("$primary", "$warning")
EVALUATED = "evaluated ±95%"
LINES = ("━", "•")
"""How each curve is drawn, so that they differ without colour."""
EDGES = ("·", ":")
"""How the edges of the band around a mean over seeds are drawn."""


class CompareScreen(Screen[None]):
    CSS_PATH = "compare.tcss"
    BINDING_GROUP_TITLE = "Compare"
    BINDINGS = [
        Binding(
            "down",
            "scroll(1)",
            "More below",
            tooltip="Rows that have no room; pgdn and end, too.",
            id="compare.down",
            key_display="↓",
            priority=True,
        ),
        Binding(
            "up",
            "scroll(-1)",
            "Up",
            tooltip="Rows above, home and pgup, too.",
            id="compare.up",
            show=False,
            priority=True,
        ),
        Binding(
            "s",
            "seeds",
            "Seeds",
            tooltip="Each run alone, or the mean over all listed that differ from it in seed only.",
            id="compare.seeds",
        ),
        Binding(
            "question_mark", "app.help", "Help", tooltip="What the keys do.", id="help", show=False
        ),
        Binding("escape", "dismiss", "Back", tooltip="Back to the runs.", id="compare.leave"),
    ]

    def __init__(self, first: RunRow, second: RunRow, others: Iterable[RunRow] = ()) -> None:
        """A comparison of two runs whose events have been read; `others` are those among which their seeds are."""
        super().__init__()
        known = list(others)
        self._rows = (first, second)
        self._alone = ([first], [second])
        self._seeds = (seeds_of(first, known), seeds_of(second, known))
        self._sides = self._alone

    def compose(self) -> ComposeResult:
        yield TooSmall()
        yield Static(
            Content.styled(" COMPARE ", "bold $background on $accent"),
            id="compare-header",
            markup=False,
        )
        yield Plot("", id="compare-chart")
        with VerticalScroll(id="compare-facts"):
            yield Static(id="compare-table", markup=False)
        yield KeyBar()

    def on_resize(self) -> None:
        self.call_after_refresh(self._lay_out)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Rows can be scrolled where there are more than have room; two runs of one group are not two groups."""
        if action == "seeds":
            return (
                True
                if max(map(len, self._seeds)) > 1 and self._seeds[0] != self._seeds[1]
                else None
            )
        if action == "scroll":
            return any(facts.max_scroll_y > 0 for facts in self.query("#compare-facts"))
        return True

    def action_scroll(self, by: int) -> None:
        self.query_one("#compare-facts").scroll_relative(y=by, animate=False)

    def action_seeds(self) -> None:
        self._sides = self._seeds if self._sides is self._alone else self._alone
        self._lay_out()

    def _lay_out(self) -> None:
        table = self.query_one("#compare-table", Static)
        width = table.size.width or self.app.size.width
        table.update(Content("\n").join([*self._heads(width), *self._rows_of_table(width)]))
        self.call_after_refresh(self.refresh_bindings)
        # The chart gets what the table leaves.
        show = partial(
            self.query_one(Plot).show, self._sides is self._alone, self._drawing, at_once=True
        )
        self.call_after_refresh(show)

    def _drawing(self) -> Drawing | None:
        """Both curves, the first with two dots a cell, from the first episode on; of several seeds in their band."""
        found = []
        for index, side in enumerate(self._sides):
            points = thinned(curve_of(side), (2, 1)[index] * max(20, self.size.width))
            color = STYLES[index].removeprefix("$")
            for edge in (-1, 1) if len(side) > 1 else ():
                found.append(
                    Curve(
                        [(p.episode, p.mean_return + edge * p.stderr) for p in points],
                        color,
                        EDGES[index],
                    )
                )
            found.append(
                Curve([(p.episode, p.mean_return) for p in points], color, ("", LINES[1])[index])
            )
        known = self._rows[0].known.baselines  # of the same game
        began = [start for row in self._rows if (start := row.known.returns.start)]
        drawing = Drawing(
            found, levels=baseline_levels(known), marks=began, fitted=[*known.values()], left=0.0
        )
        return drawing if any(curve.points for curve in found) else None

    def _heads(self, width: int) -> list[Content]:
        return [
            Content.assemble(
                (f"{LINES[index]} {NAMES[index]} ", f"bold {STYLES[index]}"),
                (
                    f"{row.info.started_at:%d %b %H:%M} · {one_line(row.agent)} · {row.ending}",
                    "bold",
                ),
                (f" · {self._named(index)}", "$aside"),
            ).truncate(width, ellipsis=True)
            for index, row in enumerate(self._rows)
        ]

    def _named(self, index: int) -> str:
        """The folder of the run, or what its side is the mean of."""
        side = self._sides[index]
        if len(side) == 1:
            return one_line(side[0].info.run_dir.name)
        seeds = ", ".join(str(row.info.config.seed) for row in side)
        return f"{len(side)} seeds: {seeds}; {EDGES[index]} ± standard error"

    def _rows_of_table(self, width: int) -> list[Content]:
        """How the runs went, and the settings that differ."""
        first, second = (row.known for row in self._rows)
        configs = [row.info.config for row in self._rows]
        results = {
            "": NAMES,
            "return at the end": tuple(map(_at_end, self._sides)),
            EVALUATED: tuple(map(_evaluated, self._sides)),
            "played": tuple(map(_played, self._sides)),
        }
        if known := ", ".join(f"{name} {plain(value)}" for name, value in first.baselines.items()):
            results["baselines"] = (known, known)
        if first.evaluation is second.evaluation is None:
            del results[EVALUATED]
        different = differences(configs[0], configs[1], (first.changes, second.changes))
        if self._sides is self._seeds:
            different = {name: pair for name, pair in different.items() if name not in OF_A_SEED}
        title = "Settings that differ:" if different else "All settings are the same."
        names = max(len(name) for name in (*results, *different)) + 2
        room = max(8, (width - names - 2) // 2)
        return [
            *[_line(name, pair, names, room) for name, pair in results.items()],
            Content.styled(title, "$aside"),
            *[_line(name, pair, names, room) for name, pair in different.items()],
        ]


def _line(name: str, pair: tuple[str, ...], names: int, room: int) -> Content:
    """A name and the value of each run; a value that is too long goes on below."""
    parts = [
        Content.styled(one_line(value), style).wrap(room)
        for value, style in zip(pair, STYLES, strict=True)
    ]
    lines = []
    for index, (left, right) in enumerate(zip_longest(*parts, fillvalue=Content(""))):
        head = Content.styled(f"{name if index == 0 else '':<{names}}", "$aside")
        lines.append(head + left.pad_right(max(0, room + 2 - left.cell_length)) + right)
    return Content("\n").join(lines)


def curve_of(side: Sequence[RunRow]) -> list[CurvePoint]:
    """The curve of a run, or the mean of several runs' with its standard error over them."""
    return averaged([row.curve for row in side]) if len(side) > 1 else side[0].curve


def _at_end(side: Sequence[RunRow]) -> str:
    """Where the curve ends; of several runs with the standard error over them."""
    unit, recent, curve = side[0].known.return_unit, side[0].known.recent, curve_of(side)
    if recent is None or not curve:
        return "none"
    if len(side) == 1:
        return f"{with_unit(recent.text, unit)} over {recent.episodes:,}"
    mean = plus_minus(curve[-1].mean_return, curve[-1].stderr)
    return f"{with_unit(mean, unit)}, {len(side)} seeds, at {curve[-1].episode:,}"


def _evaluated(side: Sequence[RunRow]) -> str:
    """The last evaluation; of several runs the mean of theirs, with the standard error over them."""
    unit = side[0].known.return_unit
    found = [evaluated_return(last) for row in side if (last := row.known.evaluation) is not None]
    mean = mean_return([each.mean for each in found])
    if mean is None:
        return "not evaluated"
    if len(found) == 1:
        return with_unit(found[0].text, unit) + (", one seed" if len(side) > 1 else "")
    return f"{with_unit(plus_minus(mean.mean, mean.stderr), unit)}, standard error, {mean.episodes} seeds"


def _played(side: Sequence[RunRow]) -> str:
    played = [row.known for row in side]
    episodes, updates = sum(each.episodes for each in played), sum(each.updates for each in played)
    total = replace(
        played[0],
        episodes=episodes,
        updates=updates,
        played_s=sum(each.played_s for each in played),
    )
    return played_text(total)
