"""Rollouts of anybody's trainer: the steps, the rollouts of one, and a rollout as a conversation.

Files are read in a thread, and looked at again each second; a person stays where they are while files grow.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import islice
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container, Vertical
from textual.content import Content
from textual.style import Style
from textual.widgets import Input, Static
from textual.worker import get_current_worker

from llamagym_tui.errors import LlamaGymError
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.rollouts.figures import ORDERS, StepFigures, ordered, step_figures
from llamagym_tui.rollouts.index import Rollouts
from llamagym_tui.rollouts.rollout import Entry, Rollout, Token
from llamagym_tui.rollouts.search import Found, Pattern, search
from llamagym_tui.screens.conversation.inspector import visible
from llamagym_tui.screens.playground.panes import Pane
from llamagym_tui.screens.rollouts.colouring import COLOURED, colourings, figures_of, token_style
from llamagym_tui.screens.rollouts.lines import Lines
from llamagym_tui.screens.rollouts.panes import ListPane, StepsPane, figure
from llamagym_tui.screens.rollouts.parts import parts_of
from llamagym_tui.screens.rollouts.rollout_view import RolloutView
from llamagym_tui.screens.widgets.fields import SentenceInput
from llamagym_tui.screens.widgets.frame import HELP_KEY, Fitted
from llamagym_tui.screens.widgets.look import heading
from llamagym_tui.screens.widgets.numbers import plain
from llamagym_tui.state.returns import counted

LOOK_S = 1.0
"""Seconds between two looks at files that may have grown."""
SHOWN_S = 0.5
"""Seconds between two pictures of what was read or found meanwhile."""
MOST_COMPARED = 500
"""Rollouts of a step in which repeated words are counted."""


class RolloutsScreen(Fitted[None]):
    CSS_PATH = "rollouts.tcss"
    BINDING_GROUP_TITLE = "Rollouts"
    BINDINGS: ClassVar = [
        Binding(
            "slash",
            "search",
            "Search",
            tooltip="Search everything for words, or for a regular expression: /[0-9]+/.",
            id="view.search",
        ),
        Binding("n", "found(1)", "Next", tooltip="The next one found.", id="view.next"),
        Binding("N", "found(-1)", "Before", tooltip="The one found before.", show=False),
        Binding(
            "o",
            "order",
            "Order",
            tooltip="As written, best, worst, longest, or changed most since the step before.",
            id="view.order",
        ),
        Binding(
            "s",
            "side_by_side",
            "Side by side",
            tooltip="The group of this rollout in columns, from where they part.",
            id="view.side_by_side",
        ),
        Binding(
            "t",
            "colour",
            "Tokens",
            tooltip="Colour tokens by log-probability, by the ratio to the reference, by advantage; ← → go over them.",
            id="view.tokens",
        ),
        Binding(
            "r",
            "repeats",
            "Repeats",
            tooltip="Words that many rollouts of the step share, now and in the first step.",
            id="view.repeats",
        ),
        *[
            Binding(str(number), f"pane({number})", tooltip="Go to this pane.", show=False)
            for number in (1, 2, 3)
        ],
        HELP_KEY,
        Binding("escape", "back", "Back", tooltip="Out of a search, or a pane back.", show=False),
        Binding("q", "app.quit", "Leave", tooltip="Leave.", id="quit"),
    ]

    def __init__(self, rollouts: Rollouts) -> None:
        super().__init__()
        self._rollouts = rollouts
        self._is_reading = False
        self._version = -1
        """Of what was read, when its figures were worked out."""
        self._known: dict[int | None, tuple[int, Entry, StepFigures]] = {}
        """Figures by step, with the number of entries and the last one of them then."""
        self._order = ORDERS[0]
        self._pattern: Pattern | None = None
        """What is searched for, while its finds are listed."""
        self._found: list[Found] = []
        self._entry: Entry | None = None
        """The one that is shown."""
        self._shown = Rollout(messages=())
        self._colouring = ""
        """One of `COLOURED`; empty: none."""
        self._said: set[str] = set()
        """Notes that were said, without their figures."""

    @property
    def HELP(self) -> str:
        """The notes on the files, so that they can be read again."""
        return "\n".join(map(one_line, self._rollouts.notes))

    def body(self) -> ComposeResult:
        yield Static(id="view-header", markup=False)
        with Container(id="view-body"):
            with Vertical(id="view-lists"):
                yield StepsPane()
                yield ListPane()
            view = RolloutView(self._style_of, id="rollout")
            yield Pane(3, "rollout", "pane(3)", view, Static(id="token", markup=False))
        yield SentenceInput(id="view-search", placeholder="words, or a /regular expression/")

    def on_mount(self) -> None:
        self._steps.lines.focus()
        self._look()
        self.set_interval(LOOK_S, self._look)

    @property
    def _steps(self) -> StepsPane:
        return self.query_one(StepsPane)

    @property
    def _list(self) -> ListPane:
        return self.query_one(ListPane)

    # Reading

    def _look(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self._read()

    @work(thread=True, group="read")
    def _read(self) -> None:
        """Read what is new, and show it now and then."""
        worker, rollouts = get_current_worker(), self._rollouts
        rollouts.look_again()
        is_more = True
        while is_more and not worker.is_cancelled:
            end = time.monotonic() + SHOWN_S
            while is_more and time.monotonic() < end and not worker.is_cancelled:
                is_more = rollouts.read_on()
            if rollouts.version != self._version or not is_more:
                self._version = rollouts.version
                self.call_later(self._show_read, self._figures(), is_more)
        self._is_reading = False

    def _figures(self) -> list[StepFigures]:
        """The figures of all rollouts, and of each step."""
        entries = self._rollouts.steps
        steps: list[int | None] = [None, *sorted(step for step in entries if step is not None)]
        for step in steps:
            of_step = self._entries(step)
            last = of_step[-1]
            if self._known.get(step, ())[:2] != (len(of_step), last):
                self._known[step] = (len(of_step), last, step_figures(step, of_step))
        return [self._known[step][2] for step in steps]

    def _show_read(self, figures: list[StepFigures], is_more: bool) -> None:
        self._steps.show(figures)
        self._show_list()
        read, known = self._rollouts.progress
        rest = f" · {counted(len(self._rollouts.entries), 'rollout')}"
        if is_more:
            rest += f" · reading {read / known:.0%}"
            return
        self.query_one("#view-header", Static).update(
            heading("VIEW", one_line(self._rollouts.path), rest)
        )
        for note in self._rollouts.notes:
            if (kind := note.partition("(")[0]) not in self._said:
                self._said.add(kind)
                self.notify(note, timeout=10)
