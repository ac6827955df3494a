"""Rollouts of anybody's trainer: the steps, the rollouts of one, and a rollout as a conversation.

Files are read in a thread, and looked at again each second; a person stays where they are while files grow.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container, Vertical
from textual.content import Content
from textual.style import Style
from textual.widgets import Input
from textual.worker import get_current_worker

from llamagym_tui.errors import LlamaGymError, UsageError
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.rollouts.figures import ORDERS, StepFigures, ordered
from llamagym_tui.rollouts.index import Rollouts
from llamagym_tui.rollouts.rollout import Entry, Rollout, Token
from llamagym_tui.rollouts.search import Found, Pattern, search
from llamagym_tui.screens.conversation.inspector import visible
from llamagym_tui.screens.playground.panes import Pane
from llamagym_tui.screens.rollouts.colouring import (
    COLOURED,
    LOG_RATIO,
    colourings,
    figures_of,
    token_style,
)
from llamagym_tui.screens.rollouts.panes import ListPane, StepsPane
from llamagym_tui.screens.rollouts.parts import parts_of
from llamagym_tui.screens.rollouts.rollout_view import RolloutView
from llamagym_tui.screens.widgets.fields import SentenceInput, Words
from llamagym_tui.screens.widgets.frame import HELP_KEY, Fitted
from llamagym_tui.screens.widgets.lines import Lines
from llamagym_tui.screens.widgets.look import heading
from llamagym_tui.screens.widgets.numbers import number, plain
from llamagym_tui.state.returns import counted, thinned

LOOK_S = 1.0
"""Seconds between two looks at files that may have grown."""
SHOWN_S = 0.5
"""Seconds between two pictures of what was read or found meanwhile."""
MOST_LINES = 2_000
"""Rollouts that are listed at once."""
MOST_COMPARED = 200
"""Rollouts, evenly spaced, in which repeated words are counted."""


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
            tooltip="Words that rollouts of the step share, now and in the first step.",
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
        self._steps = StepsPane()
        self._list = ListPane()
        self._view = RolloutView(self._style_of, id="rollout")
        self._token = Words(id="token")
        self._pane = Pane(3, "rollout", "pane(3)", self._view, self._token)
        self._field = SentenceInput(
            id="view-search", placeholder="words, or a /regular expression/"
        )
        self._is_reading = False
        self._seen: tuple[int, list[str], bool] | None = None
        """What was shown last: the version of the index, its notes, and whether there was more."""
        self._known: dict[object, StepFigures] = {}
        """Figures by what they are of: the step, the number of rollouts, the last one."""
        self._order = ORDERS[0]
        self._pattern: Pattern | None = None
        """What is searched for, while its finds are listed."""
        self._words = ""
        self._found: list[Found] = []
        self._is_searching = False
        self._entry: Entry | None = None
        """The one that is shown."""
        self._shown = Rollout(messages=())
        self._colouring = ""
        """One of `COLOURED`; empty: none."""
        self._said: set[str] = set()
        """Notes that were said, without their figures."""

    def body(self) -> ComposeResult:
        yield Words(heading("VIEW", "reading …", ""), id="view-header")
        with Container(id="view-body"):
            with Vertical(id="view-lists"):
                yield self._steps
                yield self._list
            yield self._pane
        yield self._field

    def on_mount(self) -> None:
        self._steps.lines.focus()
        self.call_after_refresh(self._look)  # a first line may take seconds
        self.set_interval(LOOK_S, self._look)

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
            seen = (rollouts.version, rollouts.notes, is_more)
            if self._seen != seen:
                self._seen = seen
                self.call_later(self._show_read, self._figures(), is_more)
        self._is_reading = False

    def _figures(self) -> list[StepFigures]:
        """The figures of all rollouts, and of each step; none if there is no rollout."""
        steps = sorted(each for each in self._rollouts.steps if each is not None)
        known: dict[object, StepFigures] = {}
        for step in (None, *steps):
            if entries := self._entries(step):
                told = self._rollouts.told.get(step, {}).get("episodes")
                key = (step, len(entries), entries[-1], told)
                known[key] = self._known.get(key) or self._rollouts.figures(step)
        self._known = known
        return list(known.values())

    def _entries(self, step: int | None) -> list[Entry]:
        """Those of a step, or all."""
        return list(self._rollouts.entries if step is None else self._rollouts.steps.get(step, ()))

    def _show_read(self, figures: list[StepFigures], is_more: bool) -> None:
        rollouts = self._rollouts
        if len(figures) == 1 and not self._steps.lines.count:
            self._list.lines.focus()  # there are no steps to choose from
        if figures:
            self._steps.show(figures)
            self._show_list()
        read, known = rollouts.progress
        rest = f" · reading {read / known:.0%}" if is_more and known else ""
        name = counted(len(rollouts.entries), "rollout")
        title = heading("VIEW", name, f"{rest} · {one_line(rollouts.path)}")
        self.query_one("#view-header", Words).update(title, layout=False)
        self.HELP = "\n".join(map(one_line, rollouts.notes))  # type: ignore[misc]
        notes = {note.partition("(")[0]: note for note in rollouts.notes if not is_more}
        new = [kind for kind in notes if kind not in self._said]
        self._said.update(new)
        for kind in new[:3]:  # the help has them all
            self.notify(notes[kind])

    # The lists

    @on(Lines.Moved, "#steps")
    def _show_list(self) -> None:
        """List the rollouts of the chosen step, or what was found."""
        steps = self._steps
        steps.mark()
        if self._pattern is None:
            before = [] if steps.before is None else self._entries(steps.before)
            entries = ordered(self._order, self._entries(steps.step), before)
            rows = [Found(entry, entry.opening, 0, 0) for entry in entries[:MOST_LINES]]
            title = f"{len(entries):,} · {self._order}"
        else:
            entries = [each.entry for each in self._found]
            rows = self._found[:MOST_LINES]
            so_far = " so far" if self._is_searching else ""
            title = f"{len(entries):,} · found{so_far}: {self._words} · esc goes back"
        if len(entries) > MOST_LINES:
            title = f"the first {MOST_LINES:,} of {title}"
        self._list.show(rows, title, self._entry, self._rollouts)
        self._open()

    @on(Lines.Moved, "#rollouts")
    def _open(self) -> None:
        """Show the chosen rollout."""
        entry = self._list.entry
        if entry is not None and entry != self._entry:
            self._entry = entry
            try:
                self._shown = self._rollouts.rollout(entry)
            except LlamaGymError as error:
                self._shown = Rollout(messages=(), facts=(("unread", str(error)),))
            self._show_rollout()

    def action_order(self) -> None:
        """List in the next order, from the beginning."""
        self._order = ORDERS[(ORDERS.index(self._order) + 1) % len(ORDERS)]
        self._entry = None
        self._show_list()

    def action_pane(self, number: int) -> None:
        self.query_one(f"#pane-{number}").query_one(Lines).focus()

    def on_descendant_focus(self) -> None:
        """Show the field while it is typed in, and the rollout alone where there is little room."""
        # In a wide terminal nothing changes but frames, and a class would paint everything anew.
        self.set_class(self._view.has_focus and not self.has_class("-wide"), "-reading")
        self._field.display = self._field.has_focus

    def action_back(self) -> None:
        """Go out of a search, a pane back, or out."""
        if self._view.has_focus or isinstance(self.focused, Input):
            self._list.lines.focus()
        elif self._pattern is not None:
            self._pattern = None
            self.workers.cancel_group(self, "search")
            self._show_list()
        elif self._list.lines.has_focus:
            self._steps.lines.focus()
        else:
            self.app.exit()

    # The rollout

    def _show_rollout(self) -> None:
        rollout = self._shown
        if self._colouring not in colourings(rollout):
            self._colouring = ""
        self._view.open(parts_of(rollout, by_token=bool(self._colouring)), self._pattern)
        known = [] if rollout.step is None else [f"step {rollout.step:,}"]
        for name, value in (("reward", rollout.reward), ("advantage", rollout.advantage)):
            if value is not None:
                known.append(f"{name} {number(value)}")
        legend = f"{self._colouring} · {COLOURED[self._colouring]}" if self._colouring else ""
        self._pane.entitle(Content(" · ".join(known)), legend)
        self._show_token()

    def _style_of(self, token: Token) -> Style:
        return token_style(self.app, figures_of(self._shown, token), self._colouring)

    @on(Lines.Moved, "#rollout")
    def _show_token(self) -> None:
        """Show what is known of the token under the cursor."""
        token, text = self._view.token, ""
        if token is not None:
            figures = figures_of(self._shown, token).items()
            known = [f"{name} {plain(value)}" for name, value in figures if name != LOG_RATIO]
            text = " · ".join([f"“{visible(token.text)}”", *known])
        self._token.display = bool(text)
        self._token.update(text, layout=False)

    def action_colour(self) -> None:
        """Colour the tokens by the next figure that is known of them, or not."""
        known = ["", *colourings(self._shown)]
        self._colouring = known[(known.index(self._colouring) + 1) % len(known)]
        if len(known) == 1:
            self.notify("Nothing is known of the tokens of this rollout.")
        else:
            self._view.focus()
            self._show_rollout()

    def action_side_by_side(self) -> None:
        from llamagym_tui.screens.rollouts.side_by_side import SideBySideScreen

        entry = self._entry
        members = []
        if entry is not None:
            members = [each for each in self._entries(entry.step) if each.group == entry.group]
        if len(members) < 2:
            self.notify("This rollout is alone in its group.")
            return
        best_first = ordered(ORDERS[1], members, [])
        self.app.push_screen(SideBySideScreen([*self._read_whole(best_first)]))

    # Searching

    def action_search(self) -> None:
        self._field.display = True
        self._field.focus()

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        self.search_for(event.value)

    def search_for(self, words: str | None) -> None:
        """List the rollouts that have some words."""
        self._list.lines.focus()
        if not words:
            return
        try:
            self._pattern = Pattern(words)
        except UsageError as error:
            self.notify(str(error), severity="error")
            return
        self._words = words
        self._found = []
        self._entry = None
        self._is_searching = True
        self._search(self._pattern)

    @work(thread=True, exclusive=True, group="search")
    def _search(self, pattern: Pattern) -> None:
        """Search all rollouts, and show now and then what was found."""
        worker, found = get_current_worker(), self._found
        shown_at = 0.0
        try:
            for each in search(self._rollouts, self._entries(None), pattern):
                if worker.is_cancelled:
                    return
                found += [] if each is None else [each]
                if time.monotonic() - shown_at > SHOWN_S:
                    shown_at = time.monotonic()
                    self.call_later(self._show_list)
        except LlamaGymError as error:
            self.call_later(self.notify, str(error))
        self._is_searching = False
        self.call_later(self._show_list)

    def action_found(self, by: int) -> None:
        self._list.lines.action_move(by)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "found" or self._pattern is not None

    def action_repeats(self) -> None:
        """Show what repeats in the chosen step, and search for what is chosen of it."""
        from llamagym_tui.screens.rollouts.repeats import RepeatsDialog

        steps = self._steps
        first = [each.step for each in steps.figures[1:2]]
        compared = [
            self._read_whole(thinned(self._entries(step), MOST_COMPARED))
            for step in (steps.step, *first)
        ]
        self.app.push_screen(RepeatsDialog(*compared), self.search_for)

    def _read_whole(self, entries: Sequence[Entry]) -> Iterator[Rollout]:
        """The rollouts of entries, but for those that cannot be read any more."""
        for entry in entries:
            with contextlib.suppress(LlamaGymError):
                yield self._rollouts.rollout(entry)
