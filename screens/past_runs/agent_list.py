"""The lists of home: agents with pictures; models with their size, and a note if they are on this machine."""

import asyncio
from collections.abc import Mapping
from itertools import zip_longest

from textual import on, work
from textual.binding import Binding
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.protocol.literal import literal, one_line
from llamagym_tui.runs.model_registry import BUNDLED, ENTRIES, ModelEntry, is_here, size_in_words
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.setup.catalog import missing

PICTURE_WIDTH = 16
"""Cells of a picture with the gap beside it."""
PICTURE_HEIGHT = 4
MIN_TEXT_WIDTH = 14
"""A picture is shown if the text beside it has this many cells."""


class AgentList(OptionList):
    BORDER_TITLE = "agents"
    BORDER_SUBTITLE = "also: ./file.py, or a Gymnasium id"
    BINDING_GROUP_TITLE = "Agents"
    BINDINGS = [
        Binding(
            "enter",
            "select",
            "Play",
            id="home.play",
            tooltip="Open the playground: a new run of this agent.",
        ),
    ]

    def __init__(self, agents: Mapping[str, type[AgentBase]], *, id: str) -> None:
        super().__init__(*[Option(name, id=name) for name in agents], id=id, markup=False)
        self._agents = agents
        self._words = ""

    def on_resize(self) -> None:
        self.filter(self._words)

    def filter(self, words: str) -> None:
        """Show the agents with these words in their names."""
        self._words = words
        width, chosen = self.scrollable_content_region.width, self.highlighted_option
        found = {
            n: a
            for n, a in self._agents.items()
            if words.lower() in f"{n} {a.title} {a.env_id}".lower()
        }
        self.border_title = Content("agents" if found else "agents: none matches")
        self.set_options(
            [Option(agent_card(name, agent, width), id=name) for name, agent in found.items()]
        )
        if chosen and chosen.id in found:
            self.highlighted = list(found).index(chosen.id)
        else:
            self.highlighted = 0 if found else None


class ModelList(OptionList):
    """The models; a mark stands before the one in use."""

    BORDER_TITLE = "models"
    BINDING_GROUP_TITLE = "Models"
    BINDINGS = [
        Binding(
            "enter",
            "select",
            "Choose",
            id="home.choose",
            tooltip="Play with this model from now on.",
        )
    ]

    def __init__(self, *, id: str) -> None:
        super().__init__(
            *[Option(entry.name, id=entry.name) for entry in ENTRIES], id=id, markup=False
        )
        self.chosen = BUNDLED
        self.here: dict[str, bool] = {BUNDLED: True}
        """True for a model on this machine; a model that is missing here was not looked for yet."""

    def on_mount(self) -> None:
        self._look()

    @work(exclusive=True, group="models")
    async def _look(self) -> None:
        self.here = await asyncio.to_thread(
            lambda: {entry.name: is_here(entry.name) for entry in ENTRIES}
        )
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    @on(OptionList.OptionHighlighted)
    def show_licence(self, event: OptionList.OptionHighlighted) -> None:
        entry = next(entry for entry in ENTRIES if entry.name == event.option_id)
        gated = ", gated" if entry.gated else ""
        self.border_subtitle = Content(one_line(f"{entry.name} · {entry.licence}{gated}"))

    def choose(self, name: str) -> None:
        self.chosen = name
        self._draw()

    def _draw(self) -> None:
        for entry in ENTRIES:
            self.replace_option_prompt(entry.name, self._line(entry))

    def _line(self, entry: ModelEntry) -> Content:
        """A model's name, size and place."""
        chosen, here = entry.name == self.chosen, self.here.get(entry.name)
        place = {True: "here", False: "gated" if entry.gated else "load", None: "…"}[here]
        room = max(8, self.scrollable_content_region.width - 2 - 7 - 6)
        name = entry.name if len(entry.name) <= room else entry.name.rpartition("/")[2]
        cut = Content.styled(name, "bold" if chosen else "").truncate(room, ellipsis=True)
        return Content.assemble(
            ("● " if chosen else "  ", "bold $accent"),
            cut.pad_right(room - cut.cell_length),
            (f"{size_in_words(entry.parameters):>7}", ""),
            (f"{place:>6}", "$success" if here else ASIDE),
        )


def agent_card(name: str, agent: type[AgentBase], width: int) -> Content:
    """The picture of an agent beside its title and description."""
    indent = PICTURE_WIDTH if agent.picture and width >= PICTURE_WIDTH + MIN_TEXT_WIDTH else 0
    title = Content.styled(one_line(agent.title or agent.__name__), "bold")
    env_id = one_line(agent.env_id.rpartition(":")[2])
    if indent + title.cell_length + 2 + len(env_id) < width:
        title += Content.styled(f"  {env_id}", ASIDE)
    words = f"Not installed: {needed}" if (needed := missing(agent)) else agent.description or name
    text = [title, *Content(one_line(words)).wrap(max(1, width - indent - 1))]
    picture = (
        [literal(row) for row in agent.picture.splitlines()[:PICTURE_HEIGHT]] if indent else []
    )
    lines = [
        Content.styled(f"{row or '':<{indent}}"[:indent], "$primary") + (line or Content(""))
        for row, line in zip_longest(picture, text)
    ]
    return Content("\n").join([*lines, Content("")])
