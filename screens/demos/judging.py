"""A person judges, item by item, the actions that a model chooses; it learns from each judgement."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.events import Key

from llamagym_tui.demos.judged_items import (
    ACTION_KEYS,
    JudgedItem,
    SortedItem,
    Verdict,
    append_judgement,
    judgements_path,
    write_results,
)
from llamagym_tui.errors import LlamaGymError
from llamagym_tui.protocol.literal import literal, one_line
from llamagym_tui.screens.widgets.dialogs import CautiousDialog
from llamagym_tui.screens.widgets.fields import Words
from llamagym_tui.screens.widgets.frame import HELP_KEY, Fitted
from llamagym_tui.screens.widgets.look import ASIDE, heading
from llamagym_tui.screens.widgets.numbers import share, share_bar

if TYPE_CHECKING:
    from llamagym_tui.engine.sorter import Shown, Sorter

LOOK_S = 0.25
"""Seconds between two looks at what has been read."""
MOST_NAMED = 3
"""Actions of which it is said how many items the last judgement moved there."""
LAST = 20
"""Judgements that count as the last ones."""


class Reading(Protocol):
    """A model that reads items in the background."""

    path: Path
    actions: list[str]
    prompt: str
    notice: str
    """What a person should know of the files before the first judgement; may be empty."""

    @property
    def sorter(self) -> Sorter | None:
        """None while the model is loading."""

    @property
    def failure(self) -> str:
        """The sentence on why no more is read; empty if all is well."""


class JudgingScreen(Fitted[list[str]]):
    """The screen of a file; it ends with sentences on what was written."""

    CSS_PATH = "judging.tcss"
    BINDING_GROUP_TITLE = "Sort"
    BINDINGS = [
        Binding("y", "judge_right", "Right", tooltip="The choice is right.", id="judge.right"),
        Binding("n", "judge_wrong", "Wrong", tooltip="The choice is wrong.", id="judge.wrong"),
        Binding("backspace", "undo", "Undo", tooltip="Undo the last judgement.", id="judge.undo"),
        Binding(
            "ctrl+s",
            "stop",
            "Stop",
            tooltip="Write sorted.tsv beside the file, and leave.",
            id="judge.stop",
        ),
        HELP_KEY,
        Binding("q", "app.quit", "Leave", tooltip="Leave; judgements are kept.", id="quit"),
    ]
    HELP = """
    The model reads each item of the file and chooses an action. Say y if it is right, n if it is wrong, or name the
    right action by its key. All judgements together choose the next action, in milliseconds.
    """

    def __init__(self, reading: Reading) -> None:
        """The screen of a file that is being read."""
        super().__init__()
        self._reading = reading
        self._fault = ""
        self._last = ""
        self._seen = -1

    def body(self) -> ComposeResult:
        yield Words(id="judging-header")
        with VerticalScroll(id="judging-item-pane"):
            yield Words(id="judging-item")
        yield Words(id="judging-actions")
        yield Words(id="judging-notes")

    def on_mount(self) -> None:
        self._draw()
        self.set_interval(LOOK_S, self._look)

    def _look(self) -> None:
        """Draw again if more has been read."""
        sorter = self._reading.sorter
        seen = -1 if sorter is None else sorter.read
        if seen != self._seen or self._reading.failure:
            self._seen = seen
            self._draw()

    # Judging

    @property
    def _shown(self) -> Shown | None:
        sorter = self._reading.sorter
        return None if sorter is None else sorter.shown

    def action_judge_right(self) -> None:
        if (shown := self._shown) is not None:
            self._judge(shown.action)

    def action_judge_wrong(self) -> None:
        self._judge(None)

    def on_key(self, event: Key) -> None:
        keys = list(ACTION_KEYS[: len(self._reading.actions)])
        if event.key in keys:
            event.stop()
            self._judge(keys.index(event.key))

    def _judge(self, label: int | None) -> None:
        sorter, shown = self._reading.sorter, self._shown
        if sorter is None or shown is None:
            return
        verdict: Verdict = "wrong" if label is None else "label"
        if label == shown.action:
            verdict = "right"
        if not self._save(
            shown.item, shown.action, shown.certainties[shown.action], verdict, label
        ):
            return
        sorter.judge(label)
        unjudged = sorter.read - len(sorter.judgements)
        moved = sorter.moved.total()
        self._last = f"The last judgement moved {moved:,} of {unjudged:,} unjudged items"
        by_count = sorter.moved.most_common()
        where = [
            f"{count:,} to {one_line(sorter.actions[action])}"
            for action, count in by_count[:MOST_NAMED]
        ]
        if others := sum(count for _, count in by_count[MOST_NAMED:]):
            where.append(f"{others:,} elsewhere")
        self._last += f": {', '.join(where)}." if where else "."
        self._draw()

    def _save(
        self, item: int, action: int, certainty: float, judgement: Verdict, label: int | None
    ) -> bool:
        """Write a judgement down; False, and the reason on the screen, if that is not possible."""
        sorter, actions = self._reading.sorter, self._reading.actions
        assert sorter is not None
        judged = JudgedItem(
            item=sorter.items[item],
            shown=actions[action],
            certainty=round(certainty, 3),
            judgement=judgement,
            label=None if label is None else actions[label],
        )
        try:
            append_judgement(judgements_path(self._reading.path), judged)
            self._fault = ""
        except LlamaGymError as error:
            self._fault = str(error)
            self._draw()
        return not self._fault

    def action_undo(self) -> None:
        sorter = self._reading.sorter
        if sorter is None or not sorter.judgements:
            return
        last = sorter.judgements[-1]
        if self._save(last.item, last.shown, 0.0, "undone", None):
            sorter.take_back()
            self._last = "The last judgement does not count any more."
            self._draw()

    # The end

    def action_stop(self) -> None:
        sorter = self._reading.sorter
        if sorter is None or not sorter.read:
            self.dismiss([])
            return
        unread = len(sorter.items) - sorter.read
        if not unread:
            self._write()
            return
        dialog = CautiousDialog(
            "stop now?",
            f"{unread:,} of {len(sorter.items):,} items have not been read, and would be missing from sorted.tsv.",
            yes="stop",
            no="keep sorting",
        )
        dialog.ask(self.app, self._write)

    def _write(self) -> None:
        """Write the items that have been read with their actions, and what can be trained on, and leave."""
        reading = self._reading
        sorter = reading.sorter
        assert sorter is not None
        judged = sorter.judged
        rows: list[SortedItem] = []
        for item, (action, certainty) in enumerate(sorter.sorted_items()):
            row = SortedItem(sorter.items[item], sorter.actions[action], certainty, item in judged)
            rows.append(row)
        labels = [
            (sorter.items[each.item], sorter.actions[each.label])
            for each in sorter.judgements
            if each.label is not None
        ]
        try:
            written = write_results(reading.path, reading.prompt, rows, labels)
        except LlamaGymError as error:
            self._fault = str(error)
            self._draw()
        else:
            outcome = [f"Written: {path}" for path in written]
            total = len(sorter.items)
            if len(rows) < total:
                outcome.append(
                    f"{total - len(rows):,} of {total:,} items were not read, and are not in the table."
                )
            self.dismiss(outcome)

    # Drawing

    def _draw(self) -> None:
        reading = self._reading
        sorter, shown = reading.sorter, self._shown
        header = heading("SORT", one_line(reading.path.name), f" · {self._progress()}")
        self.query_one("#judging-header", Words).update(header)
        item = "" if sorter is None or shown is None else sorter.items[shown.item]
        self.query_one("#judging-item", Words).update(literal(item) or self._nothing())
        self.query_one("#judging-actions", Words).update(self._actions())
        self.query_one("#judging-notes", Words).update(self._notes())

    def _progress(self) -> str:
        sorter = self._reading.sorter
        if sorter is None:
            return "the model is loading"
        total = len(sorter.items)
        read = "all read" if sorter.read == total else f"{sorter.read:,} read"
        return f"{total:,} items, {read}, {len(sorter.judgements):,} judged"

    def _nothing(self) -> str:
        """The words where no item can be shown."""
        sorter = self._reading.sorter
        if self._reading.failure:
            return one_line(self._reading.failure)
        if sorter is None:
            return "The model is loading …"
        if sorter.read < len(sorter.items):
            return "The next items are being read …"
        return "All items are judged: s writes them."

    def _choice(self) -> Content:
        """The chosen action with its certainty."""
        shown = self._shown
        if shown is None:
            return Content("")
        name = one_line(self._reading.actions[shown.action])
        return Content.assemble(
            ("The model chooses ", ASIDE),
            (name, "bold $primary"),
            f", {share(shown.certainties[shown.action], 0)} certain",
        )

    def _actions(self) -> Content:
        """The actions with their keys, how sure each is here, and the number of unjudged items that it has."""
        sorter, shown = self._reading.sorter, self._shown
        counts = sorter.unjudged_by_action() if sorter is not None else None
        rows = [self._choice()]
        width = max(len(one_line(name)) for name in self._reading.actions)
        for index, name in enumerate(self._reading.actions):
            row = Content.assemble(
                (f" {ACTION_KEYS[index]} ", "bold reverse"), f" {one_line(name).ljust(width)}  "
            )
            if sorter is not None and counts is not None and shown is not None:
                certainty = shown.certainties[index]
                count = f"   {counts[index]:,} unjudged items"
                row += share_bar(certainty) + Content.styled(count, ASIDE)
            rows.append(row)
        return Content("\n").join(rows)

    def _notes(self) -> Content:
        """What the last judgement changed, how often the choices were right, and faults."""
        sorter = self._reading.sorter
        lines = [Content(self._last)] if self._last else []
        if sorter is not None and sorter.judgements:
            last, every = sorter.score(LAST), sorter.score()
            text = f"Right before it was judged: {every.right:,} of {every.judged:,}"
            if last.judged < every.judged:
                text += f", {last.right} of the last {last.judged}"
            lines.append(Content(text))
        elif self._reading.notice:
            lines.append(Content.styled(one_line(self._reading.notice), ASIDE))
        if self._fault:
            lines.append(Content.styled(one_line(self._fault), "$text-error"))
        return Content("\n").join(lines)
