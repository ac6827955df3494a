"""The warm start: which demonstrations to train on, and the progress of the training.

Files are checked as a whole before training is requested, and their faults are shown. The training continues when the
dialog is closed.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from llamagym_tui.demos.training_facts import doubts
from llamagym_tui.errors import LlamaGymError
from llamagym_tui.protocol.commands import CancelWarmStart, WarmStart
from llamagym_tui.protocol.literal import literal
from llamagym_tui.screens.demos.recording import Offer
from llamagym_tui.screens.demos.warm_start_texts import offers_text, question, warm_start_text
from llamagym_tui.screens.widgets.command_asked import CommandAsked
from llamagym_tui.screens.widgets.dialogs import CautiousDialog, ConfirmDialog
from llamagym_tui.screens.widgets.key_bar import KeyBar, key_of, own_keys
from llamagym_tui.state.run import RunState

EPISODES = 300
"""Of the evaluations before and after."""


class WarmStartDialog(ModalScreen[None]):
    CSS_PATH: ClassVar = ["../widgets/dialogs.tcss", "warm_start.tcss"]
    BINDING_GROUP_TITLE = "Warm start"
    BINDINGS: ClassVar[list[BindingType]] = own_keys(__file__)

    def __init__(self, state: RunState, offers: Callable[[], list[Offer]]) -> None:
        """`offers` reads and checks the files; it is called in a thread."""
        super().__init__()
        self._state = state
        self._find_offers = offers
        self._offers: list[Offer] | None = None
        self._fault = ""
        self._at = 0
        self._evaluates = True

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog") as frame:
            frame.border_title = "warm start"
            yield Static(id="offers", markup=False)
            yield Static(id="warm-start-state", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        self.show(self._state)
        self._read_offers()

    @work(exclusive=True)
    async def _read_offers(self) -> None:
        try:
            self._offers = await asyncio.to_thread(self._find_offers)
        except LlamaGymError as error:
            self._offers, self._fault = [], str(error)
        self.show(self._state)

    def show(self, state: RunState) -> None:
        self._state = state
        if not self.is_mounted or self not in self.app.screen_stack:
            return  # It opens, or it was left while a thread was at work.
        width = max(20, self.query_one(VerticalScroll).content_size.width)
        offers = offers_text(self._offers, self._at, self._fault, partial(key_of, self.app), evaluates=self._evaluates)
        self.query_one("#offers", Static).update(offers)
        self.query_one("#offers", Static).display = not state.warm_start.under_way
        stage = warm_start_text(state.warm_start, width, state.return_unit)
        if state.failure:
            again = f"{key_of(self.app, 'restart', 'r')} starts the trainer again."
            stage += Content.styled(f"\n{literal(state.failure)} {again}", "$text-error")
        self.query_one("#warm-start-state", Static).update(stage)
        self.refresh_bindings()

    @property
    def _chosen(self) -> Offer | None:
        return self._offers[self._at] if self._offers else None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """One training at a time, on a file without faults, while there is a trainer."""
        training = self._state.warm_start
        match action:
            case "begin":
                able = self._state.live and self._state.run is not None and not training.under_way
                return True if able and self._chosen is not None and self._chosen.facts is not None else None
            case "cancel":
                return True if training.under_way and not training.cancelling and training.result is None else None
        return True

    def action_choose(self, by: int) -> None:
        if self._offers:
            self._at = (self._at + by) % len(self._offers)
            self.show(self._state)

    def action_evaluations(self) -> None:
        self._evaluates = not self._evaluates
        self.show(self._state)

    def action_begin(self) -> None:
        """Ask for the training, once what is trained on was seen; enter means no where something speaks against it."""
        if self._chosen is None or (facts := self._chosen.facts) is None:
            return
        asked = CommandAsked(WarmStart(sft_data=facts.path, episodes=EPISODES if self._evaluates else 0))
        dialog = CautiousDialog if doubts(facts) else ConfirmDialog
        dialog("warm start?", question(facts), yes="train", no="leave it").ask(
            self.app, partial(self.post_message, asked)
        )

    def action_cancel(self) -> None:
        self.post_message(CommandAsked(CancelWarmStart()))
