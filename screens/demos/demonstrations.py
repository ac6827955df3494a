"""The demonstrations of an agent: the episodes of its file, and the chosen one in full."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container, Vertical
from textual.content import Content

from llamagym_tui.demos import files as demo_files
from llamagym_tui.demos.demonstration import Demonstration
from llamagym_tui.demos.faults import faults
from llamagym_tui.errors import LlamaGymError
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.rollouts.rollout import Rollout, Said
from llamagym_tui.screens.conversation.turns import return_text
from llamagym_tui.screens.rollouts.parts import Part, parts_of, shown
from llamagym_tui.screens.rollouts.rollout_view import RolloutView
from llamagym_tui.screens.widgets.dialogs import CautiousDialog
from llamagym_tui.screens.widgets.fields import Words
from llamagym_tui.screens.widgets.frame import HELP_KEY, Fitted
from llamagym_tui.screens.widgets.key_bar import key_of
from llamagym_tui.screens.widgets.lines import Lines
from llamagym_tui.screens.widgets.look import heading
from llamagym_tui.screens.widgets.numbers import number
from llamagym_tui.state.returns import counted

FAULTY = "✗"
"""Stands before a line with a fault."""
TITLES = f"  {'line':>6} {'return':>8} {'turns':>6}  {'source':<10}  recorded"


class EpisodeRow(NamedTuple):
    line: demo_files.Line
    faults: tuple[str, ...]
    """The sentences of `demos check` about the line."""


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
            priority=True,  # or the episode would unfold
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
        self._lines = Lines(id="episodes")
        self._view = RolloutView(id="episode")
        self._rows: list[EpisodeRow] = []
        self._fault = ""

    def body(self) -> ComposeResult:
        yield Words(id="demos-header")
        with Container(id="demos-body"):
            yield Vertical(Words(TITLES, classes="titles"), self._lines)
            yield self._view
        yield Words(id="demos-status")

    def on_mount(self) -> None:
        self._view.open([Part("", "reading the file …")])
        self._load()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return True if action != "delete" or self._rows else None

    @work(exclusive=True, group="read")
    async def _load(self) -> None:
        try:
            self._rows = await asyncio.to_thread(read_rows, self._path, self._agent)
            self._fault = ""
        except LlamaGymError as error:
            self._fault = str(error)
        self._draw()

    def action_delete(self) -> None:
        line = self._rows[self._lines.cursor].line
        question = f"Line {line.number:,} of {self._path.name} will be deleted. It is not kept."
        dialog = CautiousDialog("delete this episode?", question, yes="delete", no="keep")
        dialog.ask(self.app, lambda: self._delete(line.content))

    @work(group="change")
    async def _delete(self, content: bytes) -> None:
        try:
            await asyncio.to_thread(demo_files.remove, self._path, content)
        except LlamaGymError as error:
            self._fault = str(error)
            self._draw()
        else:
            self._load()

    def _draw(self) -> None:
        if self not in self.app.screen_stack:
            return  # It was left while a thread was at work.
        count = len(self._rows)
        self._lines.show(count, self._line, max(0, min(self._lines.cursor, count - 1)))
        self.query_one("#demos-header", Words).update(self._header())
        status = self.query_one("#demos-status", Words)
        status.update(one_line(self._fault or str(self._path)))
        status.set_class(bool(self._fault), "-fault")
        self._open()

    def _header(self) -> Content:
        count = sum(bool(row.faults) for row in self._rows)
        faulty = f" · {FAULTY} {count:,} faulty" if count else ""
        returns = [row.line.demo.episode_return for row in self._rows if row.line.demo is not None]
        mean = f" · mean return {number(sum(returns) / len(returns), 3)}" if returns else ""
        rest = f" · {counted(len(self._rows), 'episode')}{mean}{faulty}"
        return heading("DEMONSTRATIONS", one_line(self._title), rest)

    def _line(self, at: int) -> Content:
        line, found = self._rows[at]
        text = f"{line.number:>6,}"
        if (demo := line.demo) is not None:
            recorded = one_line(demo.recorded_at[:16].replace("T", " "))
            earned = number(demo.episode_return)
            text += f" {earned:>8} {demo.length:>6,}  {one_line(demo.source):<10}  {recorded}"
        return Content.assemble((FAULTY if found else " ", "$text-error"), text)

    @on(Lines.Moved, "#episodes")
    def _open(self) -> None:
        """Show the chosen episode."""
        parts = [Part("", f"There is none yet: {key_of(self.app, 'table', 'h')} plays some.")]
        if self._rows:
            parts = list(episode_parts(self._rows[self._lines.cursor], self._agent))
        self._view.open(parts)
        self.refresh_bindings()


def read_rows(path: Path, agent: AgentBase) -> list[EpisodeRow]:
    """The lines of a file with their faults; a file that does not exist has none.

    Raises:
        DemoFileError: the file cannot be read.
    """
    lines = list(demo_files.lines_of(path)) if path.exists() else []
    found: dict[int, list[str]] = {}
    for fault in faults(lines, agent):
        found.setdefault(fault.line, []).append(fault.sentence)
    return [EpisodeRow(line, tuple(found.get(line.number, ()))) for line in lines]


def episode_parts(row: EpisodeRow, agent: AgentBase) -> Iterator[Part]:
    """The faults of an episode, its origin, its conversation and its return."""
    line, found = row
    for fault in found:
        yield Part(FAULTY, shown(fault), "$text-error")
    if (demo := line.demo) is None:
        yield Part("", shown(line.content.decode("utf-8", "replace")))
        return
    model = f" ({demo.model})" if demo.model else ""
    seed = "" if demo.seed is None else f" · seed {demo.seed}"
    origin = f"line {line.number:,} · {demo.source}{model} · {demo.recorded_at}{seed}"
    yield Part("", one_line(origin))
    yield from parts_of(Rollout(tuple(messages_of(demo, agent))))
    earned, style = return_text(demo.episode_return)
    yield Part("return", f"{earned} · {one_line(demo.end)}", style)


def messages_of(demo: Demonstration, agent: AgentBase) -> Iterator[Said]:
    """The messages of an episode with actions and rewards. The speaker of a person's replies is ``you``."""
    turn = 0
    for message in demo.messages:
        role: str = message["role"]
        note, reward = "", None
        if role == "assistant":
            replaced = demo.replaced_replies.get(turn)
            if turn < min(len(demo.actions), len(demo.rewards)):
                note = agent.action_name(demo.actions[turn])
                reward = demo.rewards[turn]
            if replaced is not None:
                note += f" · instead of the model's {replaced}"
            if replaced is not None or demo.source == "human":
                role = "you"
            turn += 1
        yield Said(role, message["content"], reward=reward, note=note)
