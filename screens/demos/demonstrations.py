"""The demonstrations of an agent: the episodes of its file, the chosen one in full, and its deletion."""

import asyncio
from pathlib import Path

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from llamagym_tui.demos import files as demo_files
from llamagym_tui.errors import LlamaGymError
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.returns import counted
from llamagym_tui.screens.demos.rows import (
    EpisodeList,
    EpisodeRow,
    episode_text,
    read_rows,
    summary_text,
)
from llamagym_tui.screens.widgets.dialogs import CautiousDialog
from llamagym_tui.screens.widgets.key_bar import KeyBar, key_of
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.screens.widgets.sizes import TooSmall


class DemonstrationsScreen(Screen[None]):
    CSS_PATH = "demonstrations.tcss"
    BINDING_GROUP_TITLE = "Demonstrations"
    BINDINGS = [
        Binding(
            "x,delete",
            "delete",
            "Delete",
            tooltip="Delete this episode, once confirmed.",
            id="demos.delete",
        ),
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
        Binding("escape,q", "leave", "Back", tooltip="Back.", id="demos.leave"),
    ]

    def __init__(self, path: Path, agent: AgentBase, title: str, prompt: str) -> None:
        """The file at `path` may be absent; it is read when the screen is shown. `prompt` is the present one."""
        super().__init__()
        self._path = path
        self._agent = agent
        self._title = title
        self._prompt = prompt
        self._rows: list[EpisodeRow] = []
        self._fault = ""
        self._read = False

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
        yield Static(id="demos-status", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        self._draw()
        self._load()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "delete":
            return True if self._chosen is not None else None
        return True

    @property
    def _chosen(self) -> EpisodeRow | None:
        return self.query_one(EpisodeList).chosen if self.is_mounted else None

    @work(exclusive=True, group="read")
    async def _load(self) -> None:
        try:
            self._rows = await asyncio.to_thread(read_rows, self._path, self._agent, self._prompt)
        except LlamaGymError as error:
            self._fault = str(error)
        self._read = True
        self._draw()

    def action_delete(self) -> None:
        row = self._chosen
        if row is not None:
            question = f"Line {row.line:,} of {self._path.name} will be deleted. It is not kept."
            dialog = CautiousDialog("delete this episode?", question, yes="delete", no="keep")
            dialog.ask(self.app, lambda: self._delete(row))

    @work(group="change")
    async def _delete(self, row: EpisodeRow) -> None:
        try:
            await asyncio.to_thread(demo_files.remove, self._path, [row.content])
            self._fault = ""
        except LlamaGymError as error:
            self._fault = str(error)
        self._load()

    def action_leave(self) -> None:
        self.dismiss()

    def _draw(self) -> None:
        if not self.app.is_running or self not in self.app.screen_stack:
            return  # It was left, or the app, while a thread was at work.
        self.query_one(EpisodeList).show(self._rows, empty=self._nothing())
        self.query_one("#demos-summary", Static).update(summary_text(self._rows, self._agent))
        count = sum(bool(row.faults) for row in self._rows)
        faulty = f" · ✗ {count:,} faulty" if count else ""
        other = sum(row.other_prompt for row in self._rows)
        faulty += f" · ≠ {other:,} other-prompt" if other else ""
        header = Content.assemble(
            (" DEMONSTRATIONS ", "bold $background on $accent"),
            (f" {one_line(self._title)}", "bold"),
            (f" · {counted(len(self._rows), 'episode')}{faulty}", ASIDE),
        )
        self.query_one("#demos-header", Static).update(header)
        status = self.query_one("#demos-status", Static)
        status.update(one_line(self._fault or str(self._path)))
        status.set_class(bool(self._fault), "-fault")
        self.refresh_bindings()

    def _nothing(self) -> str:
        if not self._read:
            return "reading the file …"
        play, keep = key_of(self.app, "table", "h"), key_of(self.app, "keep", "K")
        if getattr(self.app, "run_state", None) is None:
            return "There is none yet: start a run to play some, or llamagym-tui demos generate."
        return f"There is none yet: {play} plays, {keep} keeps the model's."

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
