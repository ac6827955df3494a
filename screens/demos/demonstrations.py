"""The demonstrations of an agent: the episodes of its file, the chosen one in full, filters, sorting, edits."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Input, Static

from llamagym_tui.demos import edits
from llamagym_tui.demos.demonstration import Demonstration, encode
from llamagym_tui.errors import LlamaGymError
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.returns import counted
from llamagym_tui.screens.demos.reply_editor import ReplyEditor
from llamagym_tui.screens.demos.rows import (
    EpisodeList,
    EpisodeRow,
    episode_text,
    matching,
    misread,
    read_rows,
    summary_text,
)
from llamagym_tui.screens.widgets.dialogs import ConfirmDialog
from llamagym_tui.screens.widgets.key_bar import KeyBar, key_of
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.screens.widgets.sentence_input import SentenceInput
from llamagym_tui.screens.widgets.sizes import TooSmall


class DemonstrationsScreen(Screen[None]):
    CSS_PATH = "demonstrations.tcss"
    BINDING_GROUP_TITLE = "Demonstrations"
    BINDINGS = [
        Binding(
            "slash",
            "filter",
            "Filter",
            tooltip="Show only some: return>=1, turns<3, faulty, other-prompt, a source, any text.",
            id="demos.filter",
            key_display="/",
        ),
        Binding("s", "sort", "Sort", tooltip="Sort by the next column.", id="demos.sort"),
        Binding("r", "reverse", "Reverse", tooltip="Reverse the order.", id="demos.reverse"),
        Binding("e", "edit", "Edit", tooltip="Edit a reply of this episode.", id="demos.edit"),
        Binding(
            "x,delete",
            "delete",
            "Delete",
            tooltip="Delete this episode; u brings it back.",
            id="demos.delete",
        ),
        Binding(
            "X",
            "delete_shown",
            "Delete shown",
            tooltip="Delete all shown, once confirmed.",
            id="demos.delete_shown",
            show=False,
        ),
        Binding("u", "undo", "Undo", tooltip="Undo the last deletion or edit.", id="demos.undo"),
        Binding(
            "question_mark", "app.help", "Help", tooltip="What the keys do.", id="help", show=False
        ),
        Binding(
            "f",
            "app.warm_start",
            "Warm start",
            tooltip="Train the model on demonstrations.",
            id="demos.train",
        ),
        Binding(
            "escape,q", "leave", "Back", tooltip="Clear the filter, or go back.", id="demos.leave"
        ),
    ]

    def __init__(self, path: Path, agent: AgentBase, title: str, prompt: str) -> None:
        """The file at `path` may be absent; it is read when the screen is shown. `prompt` is the present one."""
        super().__init__()
        self._path = path
        self._agent = agent
        self._title = title
        self._prompt = prompt
        self._rows: list[EpisodeRow] = []
        self._undo: list[tuple[str, Callable[[], None]]] = []
        self._status = ""
        self._fault = ""
        self._read = False
        self._turn = asyncio.Lock()
        self._changes = 0

    def compose(self) -> ComposeResult:
        yield TooSmall()
        yield Static(id="demos-header", markup=False)
        yield Static(id="demos-summary", markup=False)
        with Container(id="demos-body"):
            with Vertical(id="demos-list"):
                episodes = EpisodeList(id="episodes")
                yield episodes.heading
                yield episodes
            with VerticalScroll(id="episode"):
                yield Static(id="episode-text", markup=False)
        yield SentenceInput(
            id="demos-filter",
            placeholder="return>=1, turns<3, faulty, other-prompt, human, any text",
            select_on_focus=False,
        )
        yield Static(id="demos-status", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        self._draw()
        self._load()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        match action:
            case "edit":
                row = self._chosen
                return (
                    True if row is not None and row.demo is not None and row.demo.length else None
                )
            case "delete" | "delete_shown":
                return True if self._chosen is not None else None
            case "undo":
                return True if self._undo else None
        return True

    @property
    def _chosen(self) -> EpisodeRow | None:
        return self.query_one(EpisodeList).chosen if self.is_mounted else None

    # Reading

    @work(exclusive=True, group="read")
    async def _load(self) -> None:
        try:
            self._rows = await asyncio.to_thread(read_rows, self._path, self._agent, self._prompt)
        except LlamaGymError as error:
            self._fault = str(error)
        self._read = True
        self._draw()

    # Looking

    def action_filter(self) -> None:
        self.query_one(SentenceInput).focus()
        self._draw_status()

    @on(Input.Changed)
    def _filter_changed(self) -> None:
        self._draw()

    @on(Input.Submitted)
    def _filter_written(self) -> None:
        self.query_one(EpisodeList).focus()
        self._draw_status()

    def action_sort(self) -> None:
        self.query_one(EpisodeList).action_sort()

    def action_reverse(self) -> None:
        episodes = self.query_one(EpisodeList)
        episodes.sort(episodes.sorted_by)

    # Changing

    def action_delete(self) -> None:
        if self._chosen is not None:
            self._delete([self._chosen])

    def action_delete_shown(self) -> None:
        shown = list(self.query_one(EpisodeList).rows)
        kept = edits.trash_path(self._path).name
        question = f"{_counts(shown)} of {self._path.name} will be deleted, and kept in {kept}."
        ConfirmDialog("delete all shown?", question, yes="delete", no="keep").ask(
            self.app, lambda: self._delete(shown)
        )

    def _delete(self, rows: list[EpisodeRow]) -> None:
        contents = [row.content for row in rows]
        gone = {row.line for row in rows}
        self._rows = [row for row in self._rows if row.line not in gone]
        removed: list[edits.Removed] = []
        status = f"{_counts(rows)} deleted, kept in {edits.trash_path(self._path).name}"
        self._undo.append(("deletion", lambda: edits.put_back(self._path, removed)))
        self._change(lambda: removed.extend(edits.remove(self._path, contents)), status)

    def action_edit(self) -> None:
        row = self._chosen
        if row is None or row.demo is None:
            return

        def edited(demo: Demonstration | None) -> None:
            if demo is not None:
                old, new = row.content, encode(demo)
                self._undo.append(("edit", lambda: edits.exchange(self._path, new, old)))
                self._change(
                    lambda: edits.exchange(self._path, old, new),
                    "reply edited; the source is now correction",
                )

        self.app.push_screen(ReplyEditor(row.demo, self._agent), edited)

    def action_undo(self) -> None:
        if self._undo:
            what, undo = self._undo.pop()
            self._change(undo, f"{what} undone")

    def _change(self, operation: Callable[[], None], status: str) -> None:
        self._changes += 1
        self._draw()
        self._carry_out(operation, status)

    @work(group="change")
    async def _carry_out(self, operation: Callable[[], None], status: str) -> None:
        """Change the file, one change after the other, and read it again after the last."""
        async with self._turn:
            try:
                await asyncio.to_thread(operation)
                self._status = status
                self._fault = ""
            except LlamaGymError as error:
                self._fault = str(error)
                self._undo.clear()
        self._changes -= 1
        if not self._changes:
            self._load()

    def action_leave(self) -> None:
        """End the filter if there is one; else close the screen."""
        field = self.query_one(SentenceInput)
        if field.value or field.has_focus:
            field.value = ""
            self._filter_written()
        else:
            self.dismiss()

    # Drawing

    def _draw(self) -> None:
        if not self.app.is_running or self not in self.app.screen_stack:
            return  # It was left, or the app, while a thread was at work.
        words = self.query_one(SentenceInput).value
        shown = matching(self._rows, words)
        self.query_one(EpisodeList).show(shown, empty=self._nothing(words))
        self.query_one("#demos-summary", Static).update(summary_text(shown, self._agent))
        of = f" of {len(self._rows):,}" if len(shown) != len(self._rows) else ""
        count = sum(bool(row.faults) for row in shown)
        faulty = f" · ✗ {count:,} faulty" if count else ""
        other = sum(row.other_prompt for row in shown)
        faulty += f" · ≠ {other:,} other-prompt" if other else ""
        header = Content.assemble(
            (" DEMONSTRATIONS ", "bold $background on $accent"),
            (f" {one_line(self._title)}", "bold"),
            (f" · {len(shown):,}{of} episode{'' if len(self._rows) == 1 else 's'}{faulty}", ASIDE),
        )
        self.query_one("#demos-header", Static).update(header)
        self._draw_status()

    def _nothing(self, words: str) -> str:
        if not self._read:
            return "reading the file …"
        if words and self._rows:
            return "No episode matches."
        play, keep = key_of(self.app, "table", "h"), key_of(self.app, "keep", "K")
        if getattr(self.app, "run_state", None) is None:
            return "There is none yet: start a run to play some, or llamagym-tui demos generate."
        return f"There is none yet: {play} plays, {keep} keeps the model's."

    def _draw_status(self) -> None:
        field = self.query_one(SentenceInput)
        field.display = bool(field.value) or field.has_focus
        status = self.query_one("#demos-status", Static)
        fault = self._fault or misread(field.value)
        status.update(one_line(fault or self._status or str(self._path)))
        status.set_class(bool(fault), "-fault")
        self.refresh_bindings()

    @on(EpisodeList.Changed)
    def _show_chosen(self) -> None:
        self._draw_episode()
        self.query_one("#episode", VerticalScroll).scroll_home(animate=False)
        self.refresh_bindings()

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw_episode)

    def _draw_episode(self) -> None:
        row, width = self._chosen, self.query_one("#episode-text").content_size.width
        text = episode_text(row, self._agent, width) if row is not None and width else ""
        self.query_one("#episode-text", Static).update(text)


def _counts(rows: list[EpisodeRow]) -> str:
    """How many episodes there are in some rows, and how many lines that are none."""
    unreadable = sum(row.demo is None for row in rows)
    counts = {"episode": len(rows) - unreadable, "unreadable line": unreadable}
    return " and ".join(counted(count, noun) for noun, count in counts.items() if count)
