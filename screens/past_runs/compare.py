"""Past runs compared: their curves of mean return in one chart, a line of results each, and the settings that differ.

Each can stand for the runs that differ from it in seed only: their mean, with its standard error over the seeds.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from llamagym_tui.protocol.literal import one_line
from llamagym_tui.returns import counted, evaluated_return, mean_return, plus_minus
from llamagym_tui.screens.past_runs.curves import ZOOM, Curves, Side
from llamagym_tui.screens.past_runs.run_table import (
    OF_A_SEED,
    RunRow,
    played_text,
    seeds_of,
    short_return,
)
from llamagym_tui.screens.widgets.key_bar import KeyBar
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.screens.widgets.sizes import TooSmall
from llamagym_tui.screens.widgets.table_list import Column, TableList
from llamagym_tui.state.run_summary import differences

CURSOR = Binding.Group("Value", compact=True)
ZOOMING = Binding.Group("Zoom", compact=True)
SMOOTHING = Binding.Group("Smoothing", compact=True)


class SideList(TableList[Side]):
    """What is compared, a line each, with the values under the cursor of the chart."""

    COLUMNS = (
        Column("", 2, lambda side: side.name, lambda side: side.index),
        Column("run", 0, lambda side: named(side), lambda side: side.rows[0].info.started_at),
        Column("at the cursor", 15, str, right=True, style="bold"),
        Column("at the end", 15, lambda side: _at_end(side), right=True),
        Column("best", 7, lambda side: short_return(_best(side)), right=True, needs=112),
        Column("evaluated", 15, lambda side: _evaluated(side), right=True, needs=96),
        Column("played", 36, lambda side: _played(side), right=True, needs=130, style=ASIDE),
    )
    curves: Curves

    def key(self, row: Side) -> object:
        return row.index

    def cell(self, row: Side, column: Column[Side], width: int) -> Content:
        if not column.title:
            return Content.styled(row.name, f"bold ${row.color}")
        if column.title == "at the cursor":
            return Content.styled(self.curves.value(row), column.style)
        return super().cell(row, column, width)


class CompareScreen(Screen[None]):
    CSS_PATH = "compare.tcss"
    BINDING_GROUP_TITLE = "Compare"
    BINDINGS = [
        Binding(
            "left",
            "look(-1)",
            "Left",
            tooltip="The values at the episodes before, shift for a tenth of the chart; the mouse, too.",
            id="compare.left",
            group=CURSOR,
            priority=True,
        ),
        Binding(
            "right",
            "look(1)",
            "Right",
            tooltip="The values at the episodes after.",
            id="compare.right",
            group=CURSOR,
            priority=True,
        ),
        Binding("shift+left", "look(-10)", show=False, priority=True),
        Binding("shift+right", "look(10)", show=False, priority=True),
        Binding(
            "plus,equals_sign",
            "zoom(1)",
            "Zoom in",
            tooltip="Half as many episodes, around the cursor; the wheel, too.",
            id="compare.closer",
            group=ZOOMING,
        ),
        Binding(
            "minus",
            "zoom(-1)",
            "Zoom out",
            tooltip="Twice as many episodes, at last all.",
            id="compare.farther",
            group=ZOOMING,
        ),
        Binding(
            "left_square_bracket",
            "smooth(-1)",
            "Less",
            tooltip="Each point the mean of fewer episodes.",
            id="compare.rougher",
            group=SMOOTHING,
        ),
        Binding(
            "right_square_bracket",
            "smooth(1)",
            "More",
            tooltip="Each point the mean of more episodes.",
            id="compare.smoother",
            group=SMOOTHING,
        ),
        Binding(
            "s",
            "seeds",
            "Seeds",
            tooltip="Each run alone, or the mean over all listed that differ from it in seed only.",
            id="compare.seeds",
        ),
        Binding(
            "pagedown",
            "scroll(1)",
            "More below",
            tooltip="Settings that have no room; pgup, too.",
            id="compare.down",
            key_display="pgdn",
            priority=True,
        ),
        Binding(
            "pageup",
            "scroll(-1)",
            "Up",
            tooltip="Settings above.",
            id="compare.up",
            show=False,
            priority=True,
        ),
        Binding(
            "question_mark", "app.help", "Help", tooltip="What the keys do.", id="help", show=False
        ),
        Binding("escape,q", "dismiss", "Back", tooltip="Back to the runs.", id="compare.leave"),
    ]

    def __init__(self, compared: Sequence[RunRow], others: Iterable[RunRow] = ()) -> None:
        """A comparison of runs of one game whose events have been read; `others` are those among which their seeds
        are."""
        super().__init__()
        known = list(others)
        groups = {
            tuple(row.key for row in seeds): seeds
            for row in compared
            if (seeds := seeds_of(row, known))
        }
        self._alone = [Side(index, [row]) for index, row in enumerate(compared)]
        self._seeds = [Side(index, seeds) for index, seeds in enumerate(groups.values())]
        self._sides = self._alone

    def compose(self) -> ComposeResult:
        yield TooSmall()
        yield Static(id="compare-header", markup=False)
        curves = Curves(id="compare-chart")
        yield curves
        sides = SideList(id="compare-sides")
        sides.curves = curves
        yield sides.heading
        yield sides
        with VerticalScroll(id="compare-facts", can_focus=False):
            yield Static(id="compare-settings", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one(SideList).focus()
        self._show()

    def on_resize(self) -> None:
        self.call_after_refresh(self.refresh_bindings)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Settings can be scrolled where there are more than have room; a single run has no seeds."""
        if action == "seeds":
            return True if any(len(side.rows) > 1 for side in self._seeds) else None
        if action == "scroll":
            return any(facts.max_scroll_y > 0 for facts in self.query("#compare-facts"))
        return True

    def action_look(self, columns: int) -> None:
        by = columns if abs(columns) == 1 else columns * self.size.width / 100
        self.query_one(Curves).move(by)

    def action_zoom(self, way: int) -> None:
        self.query_one(Curves).zoom(ZOOM**way)

    def action_smooth(self, steps: int) -> None:
        self.query_one(Curves).smooth(steps)

    def action_scroll(self, by: int) -> None:
        self.query_one("#compare-facts").scroll_relative(y=by, animate=False)

    def action_seeds(self) -> None:
        self._sides = self._seeds if self._sides is self._alone else self._alone
        self._show()

    def _show(self) -> None:
        curves, sides = self.query_one(Curves), self.query_one(SideList)
        curves.show_sides(self._sides, self._sides[0])
        sides.show(self._sides)
        text = Content("\n").join(settings_lines(self._sides, self._sides is self._seeds))
        self.query_one("#compare-settings", Static).update(text)
        self.call_after_refresh(self.refresh_bindings)

    @on(SideList.Changed)
    def _choose(self) -> None:
        """Bring the curve of the chosen run to the front."""
        chosen = self.query_one(SideList).chosen
        if chosen is not None:
            self.query_one(Curves).show_sides(self._sides, chosen)

    @on(Curves.Looked)
    def _read_off(self) -> None:
        """Show what the chart is of, and the values under its cursor."""
        curves = self.query_one(Curves)
        self.query_one(SideList).draw_again()
        self.query_one("#compare-header", Static).update(self._header(curves))

    def _header(self, curves: Curves) -> Content:
        row = self._sides[0].rows[0]
        unit = f" in {one_line(row.known.return_unit)}" if row.known.return_unit else ""
        parts = [
            f"return of {one_line(row.game)}{unit}",
            f"at episode {curves.at:,.0f}" if curves.at is not None else "",
            f"mean of {counted(curves.window, 'episode')}",
        ]
        head = (" COMPARE ", "bold $background on $accent")
        return Content.assemble(head, " ", (" · ".join(filter(None, parts)), ASIDE))


def named(side: Side) -> str:
    """When a run began and its name, or its folder, and how it ended; or what a mean is over."""
    first = side.rows[0].info
    if len(side.rows) == 1:
        named = f"{first.started_at:%d %b %H:%M} {first.name}" if first.name else first.run_dir.name
        return f"{named} · {side.rows[0].ending}"
    seeds = ", ".join(str(row.info.config.seed) for row in side.rows)
    return f"{len(side.rows)} seeds: {seeds}; ± standard error"


def settings_lines(sides: Sequence[Side], of_seeds: bool) -> list[Content]:
    """The settings that differ, each value with the letters of its runs."""
    rows = [side.rows[0] for side in sides]
    configs = [row.info.config for row in rows]
    found = differences(configs, [row.known.changes for row in rows])
    if of_seeds:
        found = {name: values for name, values in found.items() if name not in OF_A_SEED}
    title = "Settings that differ:" if found else "All settings are the same."
    lines = [Content.styled(title, ASIDE)]
    names = max(map(len, found), default=0) + 2
    for name, values in found.items():
        parts = []
        for value in dict.fromkeys(values):
            of_value = [side for side, each in zip(sides, values, strict=True) if each == value]
            letters = [(f"{side.name} ", f"bold ${side.color}") for side in of_value]
            parts.append(Content.assemble(*letters, one_line(value)))
        lines.append(Content.styled(f"{name:<{names}}", ASIDE) + Content("  ").join(parts))
    return lines


def _at_end(side: Side) -> str:
    """Where the curve ends; of several runs with the standard error over them."""
    recent, curve = side.rows[0].known.recent, side.usual
    if recent is None or not curve:
        return "none"
    return (
        recent.text if len(side.rows) == 1 else plus_minus(curve[-1].mean_return, curve[-1].stderr)
    )


def _best(side: Side) -> float | None:
    """The highest point of the curve."""
    return max((point.mean_return for point in side.usual), default=None)


def _evaluated(side: Side) -> str:
    """The last evaluation; of several runs the mean of theirs, with the standard error over them."""
    found = [
        evaluated_return(last) for row in side.rows if (last := row.known.evaluation) is not None
    ]
    mean = mean_return([each.mean for each in found])
    if mean is None:
        return "—"
    return found[0].text if len(found) == 1 else plus_minus(mean.mean, mean.stderr)


def _played(side: Side) -> str:
    played = [row.known for row in side.rows]
    total = replace(
        played[0],
        episodes=sum(each.episodes for each in played),
        updates=sum(each.updates for each in played),
        played_s=sum(each.played_s for each in played),
    )
    return played_text(total)
