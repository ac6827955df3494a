"""A table for a person: the state drawn, what the agent would see, its actions on keys, and where the episodes went.

Plays in an environment of its own in this process, independent of the trainer. Threads make the environment and write
demonstrations, so that keys never wait.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widgets import Input, Static

from llamagym_tui.demos.human_game import MATCH, HumanGame, Match
from llamagym_tui.errors import LlamaGymError
from llamagym_tui.game.choices import Choice
from llamagym_tui.protocol.commands import Evaluate
from llamagym_tui.screens.conversation.view import ConversationView
from llamagym_tui.screens.play.choosing import ChoosingScreen, reasoning_input
from llamagym_tui.screens.play.policy_hint import PolicyHint
from llamagym_tui.screens.play.table_texts import choices_text, header_text, hint_text, saved_text, score_text
from llamagym_tui.screens.widgets.command_asked import CommandAsked
from llamagym_tui.screens.widgets.key_bar import KeyBar, key_of, own_keys
from llamagym_tui.screens.widgets.literal import literal_content
from llamagym_tui.screens.widgets.sentence_input import SentenceInput
from llamagym_tui.screens.widgets.sizes import TooSmall
from llamagym_tui.state.run import RunState

MAKING = "making the environment …"


class HumanTableScreen(ChoosingScreen[None]):
    CSS_PATH = "table.tcss"
    BINDING_GROUP_TITLE = "Table"
    BINDINGS: ClassVar[list[BindingType]] = own_keys(__file__)

    def __init__(self, game: HumanGame, title: str, policy_hint: PolicyHint, state: RunState) -> None:
        super().__init__()
        self._game = game
        self._title = title
        self._policy_hint = policy_hint
        self._state = state
        self._fault = ""
        self._opened = False
        self._hints = False

    def compose(self) -> ComposeResult:
        yield TooSmall()
        yield Static(id="table-header", markup=False)
        yield Static(id="drawing", markup=False)
        yield ConversationView(id="table", by_person=True, placeholder=MAKING)
        yield Static(id="choices", markup=False)
        yield reasoning_input("reasoning")
        yield Static(id="hint", markup=False)
        yield Static(id="score", markup=False)
        yield Static(id="saved", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one(ConversationView).focus()
        self.query_one(SentenceInput).value = self._game.reasoning
        self.update_text("table-header", header_text(self._title))
        self.draw()
        self._open()

    def show(self, state: RunState) -> None:
        """Take in another state of the run: it may hold the policy's answer."""
        self._state = state
        self._show_hint()
        self.update_text("score", score_text(self._game, state))

    @work(exclusive=True, group="table")
    async def _open(self) -> None:
        with self._showing_faults():
            await asyncio.to_thread(self._game.open)
            self._opened = True
            if self._game.over and not self._game.returns:
                self._game.deal()

    @property
    def choices(self) -> tuple[Choice, ...]:
        return () if self._game.over else self._game.choices

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        game = self._game
        match action:
            case "end_reason":
                return self.writing
            case "next":
                return self._opened and game.over and not self.writing
            case "discard" | "keep":
                return game.last is not None and (action == "keep") == game.discarded
            case "reason":
                return True if self._opened and not game.over else None
            case "match":
                able = self._opened and game.over and self._state.live and self._state.run is not None
                return True if able and self._state.pending.evaluation is None else None
            case "save":
                return game.writer.saved.waiting > 0
        return True

    def action_choose(self, index: int) -> None:
        if not self._opened or index >= len(self.choices):
            return
        sentence, choice = self.query_one(SentenceInput), self.choices[index]
        with self._showing_faults():
            if self._game.act(choice.action, sentence.value):
                self.action_save()
            sentence.value = ""

    def action_match(self) -> None:
        seed = self._game.next_seed()
        self._game.match = Match(seed, [])
        self.post_message(CommandAsked(Evaluate(episodes=MATCH, seed=seed)))
        self.action_next()

    def action_next(self) -> None:
        if self._opened and self._game.over:
            with self._showing_faults():
                self._game.deal()

    @work(exclusive=True, group="save")
    async def action_discard(self) -> None:
        """Take the finished episode out of the file, or put it back."""
        with self._showing_faults():
            await asyncio.to_thread(self._game.discard)

    action_keep = action_discard

    def action_hint(self) -> None:
        self._hints = not self._hints
        self.draw()

    @work(group="save")
    async def action_save(self) -> None:
        await asyncio.to_thread(self._game.writer.save)
        self.draw()

    def action_leave(self) -> None:
        """Back from the sentence to the table, from the table to the playground; the episode under way waits."""
        if self.writing:
            self.action_reason()
        else:
            self.dismiss()

    @on(Input.Changed)
    def _sentence_changed(self, message: Input.Changed) -> None:
        self._game.reasoning = message.value
        self._fault = ""
        self.draw()

    @contextmanager
    def _showing_faults(self) -> Iterator[None]:
        """Show the error of what is done within, if any, and draw."""
        try:
            yield
            self._fault = ""
        except LlamaGymError as error:
            self._fault = str(error)
        self.draw()

    def draw(self) -> None:
        if self not in self.app.screen_stack:
            return  # It was left while a thread was at work.
        game = self._game
        table = self.query_one(ConversationView)
        table.set_placeholder("This environment cannot be played." if self._fault else MAKING)
        table.show(game.transcript.entries)
        drawing = self.query_one("#drawing", Static)
        drawing.display = bool(game.drawing)
        drawing.update(literal_content(game.drawing))
        key = partial(key_of, self.app)
        choices = choices_text(game, key, writing=self.writing) if self._opened else ""
        self.update_text("choices", choices)
        self.show_sentence()
        self._show_hint()
        self.update_text("score", score_text(game, self._state))
        saved = self.query_one("#saved", Static)
        saved.update(saved_text(game, self._fault))
        saved.set_class(bool(game.writer.saved.fault or self._fault), "-fault")
        self.refresh_bindings()

    def _show_hint(self) -> None:
        """Show the hint, and request the policy's answer once for each turn."""
        game, hint = self._game, self.query_one("#hint", Static)
        hint.display = self._hints and not game.over
        if not hint.display:
            return
        if (question := self._policy_hint.question(game, self._state)) is not None:
            self.post_message(CommandAsked(question))
        hint.update(hint_text(game, self._policy_hint.text(game, self._state)))
