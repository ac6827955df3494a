"""The lists of rollouts: the steps with their chart, and the rollouts of a step or what was found in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual.content import Content

from llamagym_tui.protocol.literal import one_line
from llamagym_tui.rollouts.figures import StepFigures
from llamagym_tui.rollouts.rollout import Entry
from llamagym_tui.rollouts.search import Found
from llamagym_tui.screens.playground.panes import Pane
from llamagym_tui.screens.rollouts.parts import shown
from llamagym_tui.screens.rollouts.rollout_view import MATCH
from llamagym_tui.screens.widgets.chart import Curve, Drawing, Plot
from llamagym_tui.screens.widgets.fields import Words
from llamagym_tui.screens.widgets.lines import Lines
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.screens.widgets.numbers import plain, share
from llamagym_tui.state.returns import thinned

BEFORE = 8
"""Characters before what was found."""
MOST_POINTS = 500
"""Steps in the chart."""


def figure(value: float | None) -> str:
    """A reward or an advantage; empty if the file has none."""
    return "" if value is None else plain(value)


class StepsPane(Pane, can_focus=False):
    """The mean reward over the steps, and a line a step; the first line is of all."""

    HELP = (
        "A line a step of training: rollouts, mean reward ± its spread, the share of groups whose rewards are all "
        "alike (nothing can be learnt from those), mean length. While the cursor is here on the newest step, it goes "
        "to each newer one."
    )

    def __init__(self) -> None:
        self.lines = Lines(id="steps")
        self.figures: Sequence[StepFigures] = ()
        """Of all rollouts, then of each step."""
        self._plot = Plot("The chart begins with the second step.")
        titles = f" {'step':>5} {'rollouts':>8}  {'reward':<14} {'alike':>5} {'length':>6}"
        titled = Words(titles, classes="titles")
        super().__init__(1, "steps", "pane(2)", self._plot, titled, self.lines)

    @property
    def step(self) -> int | None:
        """The chosen step; None: all."""
        return self.figures[self.lines.cursor].step if self.lines.cursor else None

    @property
    def before(self) -> int | None:
        """The step before the chosen one."""
        return self.figures[self.lines.cursor - 1].step if self.lines.cursor > 1 else None

    def show(self, figures: Sequence[StepFigures]) -> None:
        """Show figures; the cursor stays on its step, and on the newest while it has the focus."""
        lines = self.lines
        steps = [each.step for each in figures]
        cursor = steps.index(self.step) if self.step in steps else 0
        if not lines.count or (lines.has_focus and 0 < lines.cursor == lines.count - 1):
            cursor = len(steps) - 1
        self.figures = figures
        lines.show(len(figures), self._line, cursor)
        self.set_class(len(figures) < 3, "-no-chart")
        self.set_class(len(figures) < 2, "-no-steps")
        if len(figures) < 2:
            self.entitle(Content.styled("none in these files", ASIDE))
        self.mark()

    def mark(self) -> None:
        """Draw the chart with a mark at the chosen step."""
        self._plot.show((tuple(self.figures), self.step), self._drawing)

    def _drawing(self) -> Drawing | None:
        points, band = [], []
        for each in thinned(self.figures[1:], MOST_POINTS):
            if each.step is not None and each.mean is not None and each.spread is not None:
                points.append((each.step, each.mean))
                band.append(each.spread)
        marks = [] if self.step is None else [(self.step, "")]
        return Drawing([Curve(points)], band, marks=marks) if len(points) > 1 else None

    def _line(self, at: int) -> Content:
        each = self.figures[at]
        name = "all" if each.step is None else f"{each.step:,}"
        reward = f"{figure(each.mean)} ± {figure(each.spread)}" if each.mean is not None else ""
        alike = "" if each.alike is None else share(each.alike, 0)
        rest = f" {each.rollouts:>8,}  {reward:<14} {alike:>5} {each.length:>6,.0f}"
        return Content.assemble((f"{name:>5}", "bold"), rest)


class ListPane(Pane, can_focus=False):
    """The rollouts of a step, or what was found, a line each."""

    HELP = (
        "A line a rollout: its group, or its step where several are listed; reward, advantage, length in tokens (in "
        "characters where the file has none), and how it begins. enter reads it; s shows its group side by side."
    )

    def __init__(self) -> None:
        self.lines = Lines(id="rollouts")
        self._rows: Sequence[Found] = ()
        self._shown: object = None
        """What is listed, with its title."""
        self._groups: dict[int, int] = {}
        """The numbers of the step's groups, from 1 in the order in which they were written; empty where several steps
        are listed."""
        self._titles = Words(classes="titles")
        super().__init__(2, "rollouts", "pane(3)", self._titles, self.lines)

    @property
    def entry(self) -> Entry | None:
        """The chosen one."""
        return self._rows[self.lines.cursor].entry if self._rows else None

    def show(
        self,
        rows: Sequence[Found],
        title: str,
        chosen: Entry | None,
        written: Mapping[int | None, Sequence[Entry]],
    ) -> None:
        """List rollouts with words of each.

        Args:
            rows: what is listed.
            title: of the list.
            chosen: the cursor is on it, if it is among them.
            written: all rollouts of each step, as they were written.
        """
        if (rows, title) == self._shown:
            return
        self._shown = (rows, title)
        self._rows = rows
        entries = [row.entry for row in rows]
        steps = {entry.step for entry in entries}
        is_one_step = len(steps) == 1
        of_step = written.get(steps.pop(), ()) if is_one_step else ()
        groups = dict.fromkeys(entry.group for entry in of_step)
        self._groups = {group: number for number, group in enumerate(groups, 1)}
        cursor = entries.index(chosen) if chosen in entries else 0
        self.lines.show(len(entries), self._line, cursor)
        self.entitle(Content.styled(one_line(title), ASIDE))
        name = "group" if is_one_step else "step"
        figures = "" if self._is_found else f" {'advant.':>7} {'length':>6}"
        self._titles.update(f" {name:>5} {'reward':>6}{figures}  said", layout=False)

    @property
    def _is_found(self) -> bool:
        """True if words that were found need the room."""
        return bool(self._rows) and self._rows[0].stop > 0

    def _line(self, at: int) -> Content:
        entry, words, start, stop = self._rows[at]
        name = self._groups.get(entry.group, entry.step)
        figures = "" if self._is_found else f" {figure(entry.advantage):>7} {entry.length:>6,}"
        return Content.assemble(
            (f"{'' if name is None else name:>5}", ASIDE),
            (f" {figure(entry.reward):>6}", "bold"),
            f"{figures}  {shown(words[max(0, start - BEFORE) : start])}",
            (shown(words[start:stop]), MATCH),
            shown(words[stop:]),
        )
