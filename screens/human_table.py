"""A table for a person: what the agent would see, its actions on keys, and where the finished episodes went.

Plays in an environment of its own in this process, whatever the trainer does. Making the environment and writing
demonstrations happen in threads, so that neither stops a key.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.events import Key
from textual.screen import Screen
from textual.widgets import Static

from llamagym_tui.errors import LlamaGymError
from llamagym_tui.human import Choice, HumanGame
from llamagym_tui.return_series import mean_return
from llamagym_tui.screens.widgets.conversation import ConversationView
from llamagym_tui.screens.widgets.facts import number
from llamagym_tui.screens.widgets.key_bar import KeyBar
from llamagym_tui.screens.widgets.literal import literal, one_line
from llamagym_tui.screens.widgets.too_small import TooSmall

NEXT_KEYS = ("enter", "space")
"""Keys that begin the next episode."""


class HumanTableScreen(Screen[None]):
    """A person plays."""

    CSS_PATH = "human_table.tcss"
    BINDING_GROUP_TITLE = "Table"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "next", "Next episode", tooltip="Begin the next episode.", priority=True),
        Binding("ctrl+s", "save", "Save again", tooltip="Try again to write the episodes that are not on disk."),
        Binding("escape", "leave", "Back", tooltip="Back to the playground; the table stays as it is."),
    ]

    def __init__(self, game: HumanGame, title: str) -> None:
        """A screen for a table that may have been played at before.

        Args:
            game: the table.
            title: name of what is played.
        """
        super().__init__()
        self._game = game
        self._title = title
        self._fault = ""
        self._opened = False

    def compose(self) -> ComposeResult:
        """Structure only."""
        yield TooSmall()
        yield Static(id="table-header", markup=False)
        yield ConversationView(id="table", by_person=True, placeholder="setting the table …")
        yield Static(id="choices", markup=False)
        yield Static(id="score", markup=False)
        yield Static(id="saved", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        """Show the table, then set it."""
        self.query_one(ConversationView).focus()
        header = Content.assemble((" YOU PLAY ", "bold $background on $accent"), (f" {one_line(self._title)}", "bold"))
        aside = Content.styled(" · every finished episode becomes a demonstration", "$foreground 60%")
        self.query_one("#table-header", Static).update(header + aside)
        self._draw()
        self._open()

    @work(exclusive=True, group="table")
    async def _open(self) -> None:
        try:
            await asyncio.to_thread(self._game.open)
            self._opened = True
            if self._game.over and not self._game.returns:
                self._game.deal()
        except LlamaGymError as error:
            self._fault = str(error)
        self._draw()

    def on_key(self, event: Key) -> None:
        """Actions are taken with the agent's keys."""
        for choice in self._game.choices:
            if choice.key in (event.key, event.character):
                event.stop()
                event.prevent_default()
                self._take(choice)
                return
        if event.key in NEXT_KEYS:
            self.action_next()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """The next episode waits for the end of this one; saving, for something unsaved."""
        if action == "next":
            return self._opened and self._game.over
        if action == "save":
            return self._game.saved.waiting > 0
        return True

    def action_next(self) -> None:
        """Begin the next episode."""
        if not (self._opened and self._game.over):
            return
        try:
            self._game.deal()
            self._fault = ""
        except LlamaGymError as error:
            self._fault = str(error)
        self._draw()

    def action_save(self) -> None:
        """Try again to write what is not on disk."""
        self._save()

    def action_leave(self) -> None:
        """Back; the episode under way waits."""
        self.dismiss()

    def _take(self, choice: Choice) -> None:
        if not self._opened or self._game.over:
            return
        try:
            if self._game.act(choice.action):
                self._save()
        except LlamaGymError as error:
            self._fault = str(error)
        self._draw()

    @work(group="save")
    async def _save(self) -> None:
        await self._game_saved()
        if self.is_mounted:
            self._draw()

    async def _game_saved(self) -> None:
        await asyncio.to_thread(self._game.save)

    def _draw(self) -> None:
        game = self._game
        table = self.query_one(ConversationView)
        table.say_while_empty("There is no table." if self._fault else "setting the table …")
        table.show(game.transcript.entries)
        self.query_one("#choices", Static).update(self._choices())
        self.query_one("#score", Static).update(self._score())
        saved = self.query_one("#saved", Static)
        saved.update(Content(literal(self._saved())))
        saved.set_class(bool(game.saved.fault or self._fault), "-fault")
        self.refresh_bindings()

    def _choices(self) -> Content:
        game = self._game
        if not self._opened:
            return Content("")
        if game.over:
            result = f"The episode is over: return {number(game.score)}.  " if game.returns else ""
            return Content.assemble((result, "bold"), (" enter ", "bold reverse"), " next episode")
        content = Content("")
        for choice in game.choices:
            gap = "   " if content else ""
            content += Content.assemble(gap, (f" {literal(choice.key)} ", "bold reverse"), f" {one_line(choice.name)}")
        return content

    def _score(self) -> Content:
        game = self._game
        mean = mean_return(game.returns)
        if mean is None:
            return Content(f"this episode {number(game.score)}")
        plural = "" if mean.episodes == 1 else "s"
        return Content(
            f"this episode {number(game.score)} · {mean.episodes:,} episode{plural}, mean return {number(mean.mean, 3)}"
        )

    def _saved(self) -> str:
        saved = self._game.saved
        if self._fault:
            return self._fault
        if saved.fault:
            return f"{saved.waiting} not saved, kept in memory (ctrl+s tries again): {saved.fault}"
        if not saved.episodes:
            return f"Finished episodes are appended to {self._game.path}"
        plural = "" if saved.episodes == 1 else "s"
        return f"{saved.episodes} episode{plural} saved to {self._game.path}"
