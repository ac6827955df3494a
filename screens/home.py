"""Home: the agents that ship, one to choose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.screen import Screen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from llamagym_tui.agent import Agent
from llamagym_tui.screens.widgets.key_bar import KeyBar
from llamagym_tui.screens.widgets.literal import one_line
from llamagym_tui.screens.widgets.too_small import TooSmall


class HomeScreen(Screen[None]):
    """Chooses what to play."""

    CSS_PATH = "home.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("q", "app.quit", "Quit", tooltip="Leave.")]

    @dataclass
    class AgentChosen(Message):
        """An agent is to be watched."""

        spec: str

    def __init__(self, agents: dict[str, type[Agent]]) -> None:
        """A choice of agents by name."""
        super().__init__()
        self._agents = agents

    def compose(self) -> ComposeResult:
        """A title, the agents, a hint."""
        yield TooSmall()
        with Vertical(id="home"):
            title = Content.assemble(("llamagym-tui", "bold $primary"), "  a language model learns to play, live")
            yield Static(title, id="home-title")
            yield OptionList(*[Option(_line(name, agent), id=name) for name, agent in self._agents.items()])
            hint = "enter opens the playground · your own: llamagym-tui path.py, or any Gymnasium id"
            yield Static(hint, id="home-hint", markup=False)
        yield KeyBar()

    @on(OptionList.OptionSelected)
    def choose(self, event: OptionList.OptionSelected) -> None:
        """Watch the chosen agent."""
        self.post_message(self.AgentChosen(str(event.option.id)))


def _line(name: str, agent: type[Agent]) -> Content:
    title = one_line(agent.title or agent.__name__)
    return Content.assemble((f"{title:<16}", "bold"), one_line(agent.description or name))
