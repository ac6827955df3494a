"""The demonstrations of an agent: the episodes of its file, and the chosen one in full."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container, VerticalScroll
from textual.content import Content
from textual.events import Resize
from textual.widgets import DataTable, Static

from llamagym_tui.demos import files as demo_files
from llamagym_tui.demos.demonstration import Demonstration
from llamagym_tui.demos.faults import faults
from llamagym_tui.errors import LlamaGymError
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.protocol.literal import literal, one_line
from llamagym_tui.screens.conversation.turns import Paragraph, aside, typeset
from llamagym_tui.screens.widgets.dialogs import CautiousDialog
from llamagym_tui.screens.widgets.frame import HELP_KEY, Fitted
from llamagym_tui.screens.widgets.key_bar import key_of
from llamagym_tui.screens.widgets.look import ASIDE, heading
from llamagym_tui.screens.widgets.numbers import number
from llamagym_tui.state.returns import counted
from llamagym_tui.state.transcript import clipped

FAULTY = "✗"
"""Stands before a line with a fault."""
COLUMNS = ("", "line", "return", "turns", "source", "recorded")
SPEAKERS = {"system": "system", "user": "env", "assistant": "agent"}
MAX_MESSAGES = 600
"""Messages of an episode that are shown."""


class EpisodeRow(NamedTuple):
    line: int
    """The number of the line, from 1."""
    content: bytes
    demo: Demonstration | None
    """None if the line holds no demonstration."""
    faults: tuple[str, ...]
    """The sentences of `demos check` about the line."""

    def cells(self) -> list[Text]:
        texts = [FAULTY if self.faults else "", f"{self.line:,}"]
        if (demo := self.demo) is not None:
            texts += [number(demo.episode_return), f"{demo.length:,}", demo.source]
            texts.append(demo.recorded_at[:16].replace("T", " "))
        return [Text(one_line(text)) for text in texts]


class DemonstrationsScreen(Fitted[None]):
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
            "f",
            "app.warm_start",
            "Warm start",
            tooltip="Train the model on demonstrations.",
            id="demos.train",
        ),
        HELP_KEY,
        Binding("escape,q", "dismiss", "Back", tooltip="Back.", id="demos.leave"),
    ]

    def __init__(self, path: Path, agent: AgentBase, title: str) -> None:
        """The file at `path` need not exist; it is read when the screen is shown."""
        super().__init__()
        self._path = path
        self._agent = agent
        self._title = title
        self._rows: list[EpisodeRow] = []
        self._fault = ""
        self._loaded = False

    def body(self) -> ComposeResult:
        yield Static(id="demos-header", markup=False)
        with Container(id="demos-body"):
            yield DataTable[Text](id="episodes", cursor_type="row")
            with VerticalScroll(id="episode"):
                yield Static(id="episode-text", markup=False)
        yield Static(id="demos-status", markup=False)

    def on_mount(self) -> None:
        self.query_one(DataTable).add_columns(*COLUMNS)
        self._draw()
        self._load()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "delete":
            return True if self._chosen is not None else None
        return True

    @property
    def _chosen(self) -> EpisodeRow | None:
        at = self.query_one(DataTable).cursor_row if self.is_mounted else 0
        return self._rows[at] if at < len(self._rows) else None

    @work(exclusive=True, group="read")
    async def _load(self) -> None:
        try:
            self._rows = await asyncio.to_thread(read_rows, self._path, self._agent)
            self._fault = ""
        except LlamaGymError as error:
            self._fault = str(error)
        self._loaded = True
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
            await asyncio.to_thread(demo_files.remove, self._path, row.content)
        except LlamaGymError as error:
            self._fault = str(error)
            self._draw()
        else:
            self._load()

    def _draw(self) -> None:
        if self not in self.app.screen_stack:
            return  # It was left while a thread was at work.
        table = self.query_one(DataTable)
        at = table.cursor_row
        table.clear()
        for row in self._rows:
            table.add_row(*row.cells())
        if self._rows:
            table.move_cursor(row=min(at, len(self._rows) - 1))
        self.query_one("#demos-header", Static).update(self._header())
        status = self.query_one("#demos-status", Static)
        status.update(one_line(self._fault or str(self._path)))
        status.set_class(bool(self._fault), "-fault")
        self._draw_episode()
        self.refresh_bindings()

    def _header(self) -> Content:
        count = sum(bool(row.faults) for row in self._rows)
        faulty = f" · {FAULTY} {count:,} faulty" if count else ""
        returns = [row.demo.episode_return for row in self._rows if row.demo is not None]
        mean = f" · mean return {number(sum(returns) / len(returns), 3)}" if returns else ""
        rest = f" · {counted(len(self._rows), 'episode')}{mean}{faulty}"
        return heading("DEMONSTRATIONS", one_line(self._title), rest)

    def _nothing(self) -> str:
        if not self._loaded:
            return "reading the file …"
        return f"There is none yet: {key_of(self.app, 'table', 'h')} plays some."

    @on(DataTable.RowHighlighted)
    def _show_chosen(self) -> None:
        self._draw_episode()
        self.query_one("#episode", VerticalScroll).scroll_home(animate=False)

    def on_resize(self, event: Resize) -> None:
        self.call_after_refresh(self._draw_episode)

    def _draw_episode(self) -> None:
        row, width = self._chosen, self.query_one("#episode-text").content_size.width
        text = self._nothing() if row is None else episode_text(row, self._agent, width)
        self.query_one("#episode-text", Static).update(text)


def read_rows(path: Path, agent: AgentBase) -> list[EpisodeRow]:
    """The lines of a file with their faults; a file that does not exist has none.

    Raises:
        DemoFileError: the file cannot be read.
    """
    lines = list(demo_files.lines_of(path)) if path.exists() else []
    found: dict[int, list[str]] = {}
    for fault in faults(lines, agent):
        found.setdefault(fault.line, []).append(fault.sentence)
    return [
        EpisodeRow(line.number, line.content, line.demo, tuple(found.get(line.number, ())))
        for line in lines
    ]


def episode_text(row: EpisodeRow, agent: AgentBase, width: int) -> Content:
    """The faults of an episode and its conversation, wrapped beside the labels."""
    parts = [
        Paragraph(FAULTY, Content.styled(one_line(fault), "$text-error"), "$text-error")
        for fault in row.faults
    ]
    if row.demo is None:
        text = clipped(row.content.decode("utf-8", "replace"))
        parts.append(Paragraph("", Content(literal(text))))
    else:
        parts += _conversation(row.line, row.demo, agent)
    return typeset(parts, width)


def _conversation(line: int, demo: Demonstration, agent: AgentBase) -> Iterator[Paragraph]:
    model = f" ({demo.model})" if demo.model else ""
    seed = "" if demo.seed is None else f" · seed {demo.seed}"
    yield aside("", one_line(f"line {line:,} · {demo.source}{model} · {demo.recorded_at}{seed}"))
    turn = 0
    for message in demo.messages[:MAX_MESSAGES]:
        said = Content(literal(clipped(message["content"])))
        if message["role"] != "assistant":
            yield Paragraph(SPEAKERS[message["role"]], said)
            continue
        by_person = demo.source == "human" or turn in demo.replaced_replies
        yield Paragraph("you" if by_person else "agent", said, "bold $primary")
        if turn < min(len(demo.actions), len(demo.rewards)):
            name = one_line(agent.action_name(demo.actions[turn]))
            reward = (f" · reward {number(demo.rewards[turn])}", ASIDE)
            yield Paragraph("action", Content.assemble((name, "bold"), reward))
        if turn in demo.replaced_replies:
            yield aside("instead", f"the model: {clipped(demo.replaced_replies[turn])}")
        turn += 1
    if len(demo.messages) > MAX_MESSAGES:
        yield aside("", f"… {len(demo.messages) - MAX_MESSAGES:,} more messages")
    result = f"{number(demo.episode_return)} · {one_line(demo.end)}"
    yield Paragraph("return", Content.styled(result, "bold"), "bold")
