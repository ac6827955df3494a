"""A table for a person: the state drawn, what the agent would see, its actions on keys, and where the episodes went.

A key chooses an action and a second one takes it, so that a slip can be taken back; whoever is sure lets one key do
both. Plays in an environment of its own in this process, whatever the trainer does; making the environment and
writing demonstrations happen in threads, so that neither stops a key.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.events import DescendantFocus, Key
from textual.screen import Screen
from textual.widgets import Input, Static

from llamagym_tui.demos.human_game import HumanGame
from llamagym_tui.errors import LlamaGymError
from llamagym_tui.game.choices import Choice
from llamagym_tui.screens.conversation.view import ConversationView
from llamagym_tui.screens.play.policy_hint import PolicyHint
from llamagym_tui.screens.play.table_texts import (
    choices_text,
    drawing_text,
    header_text,
    hint_text,
    saved_text,
    score_text,
)
from llamagym_tui.screens.widgets.command_asked import CommandAsked
from llamagym_tui.screens.widgets.key_bar import KeyBar, moved_key
from llamagym_tui.screens.widgets.sentence_input import SentenceInput
from llamagym_tui.screens.widgets.too_small import TooSmall
from llamagym_tui.state.run import RunState


class HumanTableScreen(Screen[None]):
    """A person plays."""

    CSS_PATH = "table.tcss"
    BINDING_GROUP_TITLE = "Table"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "take", "Take", tooltip="Take the chosen action.", priority=True, id="table.take"),
        Binding("enter", "next", "Next", tooltip="Begin the next episode.", priority=True, id="table.next"),
        Binding(
            "backspace", "take_back", "Take back", tooltip="Take back what is chosen and not taken.", id="table.undo"
        ),
        Binding("backspace", "discard", "Discard", tooltip="Take the episode out of your file.", id="table.discard"),
        Binding("backspace", "keep", "Keep", tooltip="Keep the episode after all.", id="table.keep"),
        Binding("tab", "reason", "Say why", tooltip="Add a sentence that the reply begins with.", id="table.reason"),
        Binding("ctrl+e", "hint", "Hint", tooltip="Show or hide what policy and expert would do.", id="table.hint"),
        Binding(
            "ctrl+o",
            "one_key",
            "One key",
            tooltip="Let one key choose and take, or choose first again.",
            id="table.one_key",
        ),
        Binding(
            "ctrl+s",
            "save",
            "Save again",
            tooltip="Try again to write the episodes that are not on disk.",
            id="table.save",
        ),
        Binding(
            "escape", "leave", "Back", tooltip="Back to the playground; the table stays as it is.", id="table.leave"
        ),
    ]

    def __init__(self, game: HumanGame, title: str, policy_hint: PolicyHint, state: RunState) -> None:
        """A screen for a table that may have been played at before.

        Args:
            game: the table.
            title: name of what is played.
            policy_hint: what the policy says beside it.
            state: of the run.
        """
        super().__init__()
        self._game = game
        self._title = title
        self._policy_hint = policy_hint
        self._state = state
        self._fault = ""
        self._opened = False
        self._one_key = False
        self._hints = False

    def compose(self) -> ComposeResult:
        """Structure only."""
        yield TooSmall()
        yield Static(id="table-header", markup=False)
        yield Static(id="drawing", markup=False)
        yield ConversationView(id="table", by_person=True, placeholder="setting the table …")
        yield Static(id="choices", markup=False)
        yield SentenceInput(id="reasoning", placeholder="why, in a sentence; enter goes on", select_on_focus=False)
        yield Static(id="hint", markup=False)
        yield Static(id="score", markup=False)
        yield Static(id="saved", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        """Show the table, then set it."""
        self.query_one(ConversationView).focus()
        self.query_one("#table-header", Static).update(header_text(self._title))
        self._draw()
        self._open()

    def show(self, state: RunState) -> None:
        """Hear what the policy says, while hints are shown."""
        self._state = state
        self._show_hint()

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
        """Actions are on the agent's keys, unless a sentence is being written."""
        if self._writing:
            return
        for choice in self._game.choices:
            if choice.key in (event.key, event.character):
                event.stop()
                event.prevent_default()
                self._choose(choice)
                return
        if event.key == "space":
            self.action_next()

    @property
    def _writing(self) -> bool:
        return isinstance(self.focused, SentenceInput)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """What can be done depends on whether an action is chosen and whether the episode is over."""
        game = self._game
        match action:
            case "take":
                return self._writing or game.chosen is not None
            case "next":
                return self._opened and game.over
            case "take_back":
                return game.chosen is not None
            case "discard" | "keep":
                return game.last is not None and (action == "keep") == game.discarded
            case "reason":
                return True if self._opened and not game.over else None
            case "save":
                return game.saved.waiting > 0
        return True

    def action_choose(self, index: int) -> None:
        """Choose an action by a click; a second click takes it."""
        self._choose(self._game.choices[index])

    def action_take(self) -> None:
        """Take the chosen action; with nothing chosen, the sentence waits for a choice."""
        self.query_one(ConversationView).focus()
        if self._game.chosen is not None:
            self._take()
        self._draw()

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

    def action_take_back(self) -> None:
        """Nothing is chosen any more."""
        self._game.choose(None)
        self._draw()

    @work(exclusive=True, group="save")
    async def action_discard(self) -> None:
        """Take the finished episode out of the file."""
        await self._keep_or_discard()

    @work(exclusive=True, group="save")
    async def action_keep(self) -> None:
        """Put the discarded episode into the file again."""
        await self._keep_or_discard()

    async def _keep_or_discard(self) -> None:
        try:
            await asyncio.to_thread(self._game.discard)
            self._fault = ""
        except LlamaGymError as error:
            self._fault = str(error)
        self._draw()

    def action_reason(self) -> None:
        """Write a sentence, or leave it as it stands."""
        (self.query_one(ConversationView) if self._writing else self.query_one(SentenceInput)).focus()
        self._draw()

    def action_hint(self) -> None:
        """Show or hide the hint."""
        self._hints = not self._hints
        self._draw()

    def action_one_key(self) -> None:
        """One key takes its action at once, or only chooses it."""
        self._one_key = not self._one_key
        self._draw()

    def action_save(self) -> None:
        """Try again to write what is not on disk."""
        self._save()

    def action_leave(self) -> None:
        """Back from the sentence to the table, from the table to the playground; the episode under way waits."""
        if self._writing:
            self.action_reason()
        else:
            self.dismiss()

    @on(DescendantFocus)
    def _focus_moved(self) -> None:
        self._draw()

    @on(Input.Changed)
    def _sentence_changed(self) -> None:
        self._fault = ""
        self._draw()

    def _choose(self, choice: Choice) -> None:
        if not self._opened or self._game.over:
            return
        again = choice == self._game.chosen
        self._game.choose(choice)
        if again or self._one_key:
            self._take()
        self._draw()

    def _take(self) -> None:
        sentence, chosen = self.query_one(SentenceInput), self._game.chosen
        heard = self._policy_hint.answer(self._game, self._state) if self._hints else None
        try:
            if self._game.take(sentence.value):
                self._save()
            if chosen is not None:
                self._policy_hint.taken(chosen.action, heard)
            sentence.value = ""
            self._fault = ""
        except LlamaGymError as error:
            self._fault = str(error)

    @work(group="save")
    async def _save(self) -> None:
        await asyncio.to_thread(self._game.save)
        self._draw()

    def _draw(self) -> None:
        if self not in self.app.screen_stack:
            return  # It was left while a thread was at work.
        game = self._game
        table = self.query_one(ConversationView)
        table.say_while_empty("There is no table." if self._fault else "setting the table …")
        table.show(game.transcript.entries)
        drawing = self.query_one("#drawing", Static)
        drawing.display = bool(game.drawing)
        drawing.update(drawing_text(game))
        choices = self._choices(game) if self._opened else ""
        self.query_one("#choices", Static).update(choices)
        sentence = self.query_one(SentenceInput)
        sentence.display = self._writing or bool(sentence.value)
        self._show_hint()
        self.query_one("#score", Static).update(score_text(game, self._policy_hint))
        saved = self.query_one("#saved", Static)
        saved.update(saved_text(game, self._fault))
        saved.set_class(bool(game.saved.fault or self._fault), "-fault")
        self.refresh_bindings()

    def _choices(self, game: HumanGame) -> Content:
        return choices_text(game, partial(moved_key, self.app), one_key=self._one_key, writing=self._writing)

    def _show_hint(self) -> None:
        """Show it, and ask for it where that was not done."""
        game, hint = self._game, self.query_one("#hint", Static)
        hint.display = self._hints and not game.over
        if not hint.display:
            return
        if (question := self._policy_hint.question(game, self._state)) is not None:
            self.post_message(CommandAsked(question))
        hint.update(hint_text(game, self._policy_hint.words(game, self._state)))
