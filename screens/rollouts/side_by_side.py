"""A group's rollouts side by side, the best first, from where they part."""

from collections.abc import Sequence
from typing import ClassVar

from msgspec.structs import replace
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.content import Content
from textual.events import Resize

from llamagym_tui.rollouts.rollout import Rollout
from llamagym_tui.screens.rollouts.panes import figure
from llamagym_tui.screens.rollouts.parts import parted_from, parts_of
from llamagym_tui.screens.rollouts.rollout_view import RolloutView
from llamagym_tui.screens.widgets.fields import Words
from llamagym_tui.screens.widgets.frame import HELP_KEY, Fitted
from llamagym_tui.screens.widgets.look import heading

LEAST_WIDTH = 36
"""Cells of a column."""


class SideBySideScreen(Fitted[None]):
    CSS_PATH = "rollouts.tcss"
    BINDING_GROUP_TITLE = "Side by side"
    BINDINGS: ClassVar = [
        Binding("left,h", "column(-1)", "Better", tooltip="To the column before."),
        Binding("right,l", "column(1)", "Worse", tooltip="To the next column."),
        HELP_KEY,
        Binding("escape,q,s", "dismiss", "Back", tooltip="Back to the rollouts."),
    ]

    def __init__(self, rollouts: Sequence[Rollout]) -> None:
        """`rollouts` of a group, the best first."""
        super().__init__()
        self._rollouts = rollouts
        self._chosen = 0

    def body(self) -> ComposeResult:
        rest = f" · {len(self._rollouts)} rollouts of a group, the best first"
        yield Words(heading("SIDE BY SIDE", "", rest), classes="header")
        with Horizontal():
            for number, rollout in enumerate(self._rollouts, 1):
                view = RolloutView()
                view.border_title = Content(f"{number} · reward {figure(rollout.reward) or '—'}")
                yield view

    def on_mount(self) -> None:
        parts = parted_from([parts_of(replace(each, facts=())) for each in self._rollouts])
        for view, of_view in zip(self.query(RolloutView), parts, strict=True):
            view.open(of_view, unfolded=True)
        self._show_columns()

    def on_resize(self, event: Resize) -> None:
        self._show_columns()

    def _show_columns(self) -> None:
        """Show as many columns as there is room for, with the chosen one."""
        fit = max(1, self.app.size.width // LEAST_WIDTH)
        first = max(0, self._chosen - fit + 1)
        for at, view in enumerate(self.query(RolloutView)):
            view.display = first <= at < first + fit
            if at == self._chosen:
                view.focus()

    def action_column(self, by: int) -> None:
        self._chosen = max(0, min(self._chosen + by, len(self._rollouts) - 1))
        self._show_columns()
