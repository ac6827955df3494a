"""The warm start: a choice of demonstrations, and its progress. It goes on when the dialog is closed."""

import asyncio
from collections.abc import Callable
from functools import partial

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from llamagym_tui.demos.training_data import doubts, fact_lines
from llamagym_tui.errors import LlamaGymError
from llamagym_tui.protocol.commands import CancelWarmStart, WarmStart
from llamagym_tui.protocol.events import DemonstrationsRead
from llamagym_tui.protocol.literal import literal, one_line
from llamagym_tui.screens.demos.recording import Method, Offer
from llamagym_tui.screens.widgets.command_asked import CommandAsked
from llamagym_tui.screens.widgets.dialogs import CautiousDialog, ConfirmDialog
from llamagym_tui.screens.widgets.key_bar import KeyBar, key_of
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.screens.widgets.numbers import plain, spark
from llamagym_tui.state.run import RunState
from llamagym_tui.state.texts import comparison_text
from llamagym_tui.state.texts import warm_start_text as finished_text

METHODS: dict[Method, str] = {
    "sft": "imitate every reply (SFT)",
    "dpo": "prefer a person's reply over the model's (DPO)",
}
CURVE = 60
"""Cells of the loss curve at most."""


def warm_start_text(state: RunState, width: int) -> Content:
    """The training that is under way, or the last one; empty if there was none."""
    training = state.warm_start
    parts = [Content.styled(_stage(state), "bold")]
    if state.is_warm_starting and state.detail:
        parts.append(Content.styled(one_line(state.detail), ASIDE))
    if training.refused:
        parts.append(Content.styled(literal(training.refused), "$text-error"))
    if training.losses:
        tail = f" loss {plain(training.losses[0])} → {plain(training.losses[-1])}"
        curve = spark(training.losses, max(1, min(CURVE, width - len(tail))))
        parts.append(Content.assemble((curve, "$primary"), (tail, ASIDE)))
    if training.evaluated:
        text = comparison_text(training.evaluated, state.return_unit)
        parts += [Content(""), Content(one_line(text))]
    return Content("\n").join(parts)


def _stage(state: RunState) -> str:
    training = state.warm_start
    if training.refused:
        return "refused; nothing was trained"
    if state.is_warm_starting:
        if training.result is not None:
            return "trained; now the evaluation"
        cancelled = ", to be cancelled" if state.pending.of(CancelWarmStart) is not None else ""
        return ("training" if state.phase == "warm_starting" else "requested") + cancelled
    if training.result is not None:
        return finished_text(training.result)
    return "the session ended before the training did" if training.losses else ""


def question(facts: DemonstrationsRead, method: Method) -> Content:
    """The figures of a file to train on, and the doubts about it."""
    figures = {"file": facts.path, "method": METHODS[method]}
    if method == "sft":
        figures |= fact_lines(facts)
    lines = [
        Content.assemble((f"{name:<11}", ASIDE), one_line(text)) for name, text in figures.items()
    ]
    against = doubts(facts, method)
    lines += [Content.styled(f"\n! {one_line(each)}", "$text-warning") for each in against]
    return Content("\n").join(lines)


def offer_text(offer: Offer) -> Content:
    """A file and the way to train on it, or why it is refused."""
    if offer.facts is None:
        return Content.styled(f"{offer.title}: refused\n  {literal(offer.fault)}", "$text-error")
    return Content.assemble((offer.title, "bold"), (f"\n  {METHODS[offer.method]}", ASIDE))


EPISODES = 300
"""Episodes of the evaluation before a warm start, and of the one after it."""


class OfferList(OptionList):
    BINDINGS = [
        Binding("enter", "select", "Train", tooltip="Train on this file.", id="warm_start.begin")
    ]


class WarmStartDialog(ModalScreen[None]):
    CSS_PATH = ["../widgets/dialogs.tcss", "warm_start.tcss"]
    BINDING_GROUP_TITLE = "Warm start"
    BINDINGS = [
        Binding(
            "c",
            "cancel",
            "Cancel",
            tooltip="End the training, keep its weights.",
            id="warm_start.cancel",
        ),
        Binding("r", "app.restart", "Restart", tooltip="Start the trainer again.", id="restart"),
        Binding(
            "escape,q",
            "dismiss",
            "Close",
            tooltip="Back; a training continues.",
            id="warm_start.close",
        ),
    ]

    def __init__(self, state: RunState, offers: Callable[[], list[Offer]]) -> None:
        """`offers` reads and checks the files; it is called in a thread."""
        super().__init__()
        self._state = state
        self._find_offers = offers
        self._offers: list[Offer] = []

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog") as frame:
            frame.border_title = "warm start"
            yield Static("reading and checking the demonstrations …", id="no-offers", markup=False)
            yield OfferList(id="offers", markup=False)
            yield Static(id="warm-start-state", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        self.show(self._state)
        self._read_offers()

    @work(exclusive=True)
    async def _read_offers(self) -> None:
        none = self.query_one("#no-offers", Static)
        try:
            self._offers = await asyncio.to_thread(self._find_offers)
        except LlamaGymError as error:
            none.update(Content.styled(literal(str(error)), "$text-error"))
            return
        self.query_one(OfferList).add_options(
            [Option(offer_text(offer), disabled=offer.facts is None) for offer in self._offers]
        )
        none.update(
            f"There are no demonstrations yet: {key_of(self.app, 'table', 'h')} plays some."
        )
        none.display = not self._offers
        self.query_one(OfferList).action_first()
        self.show(self._state)

    def show(self, state: RunState) -> None:
        self._state = state
        if not self.is_mounted or self not in self.app.screen_stack:
            return  # It opens, or it was left while a thread was at work.
        width = max(20, self.query_one(VerticalScroll).content_size.width)
        offers = self.query_one(OfferList)
        offers.display = not state.is_warm_starting and bool(self._offers)
        if offers.display:
            offers.focus()
        stage = warm_start_text(state, width)
        if state.failure:
            again = f"{key_of(self.app, 'restart', 'r')} starts the trainer again."
            stage += Content.styled(f"\n{literal(state.failure)} {again}", "$text-error")
        self.query_one("#warm-start-state", Static).update(stage)
        self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        state = self._state
        if action == "cancel":
            is_asked = state.pending.of(CancelWarmStart) is not None
            able = state.is_warm_starting and state.warm_start.result is None and not is_asked
            return True if able else None
        return True

    @on(OptionList.OptionSelected)
    def _begin(self, event: OptionList.OptionSelected) -> None:
        """Ask before the training; where there are doubts, enter means no."""
        facts, method = (
            self._offers[event.option_index].facts,
            self._offers[event.option_index].method,
        )
        if facts is None or not self._state.live or self._state.run is None:
            return
        asked = CommandAsked(WarmStart(sft_data=facts.path, method=method, episodes=EPISODES))
        dialog = CautiousDialog if doubts(facts, method) else ConfirmDialog
        dialog("warm start?", question(facts, method), yes="train", no="leave it").ask(
            self.app, partial(self.post_message, asked)
        )

    def action_cancel(self) -> None:
        self.post_message(CommandAsked(CancelWarmStart()))
