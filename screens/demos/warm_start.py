"""The warm start: a choice of demonstrations, and its progress. It goes on when the dialog is closed."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Literal

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from llamagym_tui.demos.training_data import doubts, fact_lines
from llamagym_tui.errors import LlamaGymError
from llamagym_tui.protocol.commands import CancelWarmStart, WarmStart
from llamagym_tui.protocol.events import DemonstrationsRead
from llamagym_tui.protocol.literal import literal, one_line
from llamagym_tui.screens.demos.recording import Offer
from llamagym_tui.screens.widgets.command_asked import CommandAsked
from llamagym_tui.screens.widgets.dialogs import CautiousDialog, ConfirmDialog
from llamagym_tui.screens.widgets.key_bar import KeyBar, key_of
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.screens.widgets.numbers import number, plain, spark
from llamagym_tui.state.reduce import comparison_text
from llamagym_tui.state.returns import counted
from llamagym_tui.state.run import RunState
from llamagym_tui.state.warm_start import Stage, WarmStartState

Method = Literal["sft", "dpo"]
CURVE = 60
"""Cells of the loss curve at most."""


def warm_start_text(warm_start: WarmStartState, width: int, unit: str) -> Content:
    if warm_start.stage is Stage.NONE:
        return Content("")
    lead = [] if warm_start.under_way else [Content("")]  # a gap below the list of files
    parts = [*lead, Content.styled(_stage(warm_start), "bold")]
    if warm_start.stage is Stage.REFUSED:
        parts.append(Content.styled(literal(warm_start.detail), "$text-error"))
    elif warm_start.detail:
        parts.append(Content.styled(one_line(warm_start.detail), ASIDE))
    if warm_start.steps:
        parts.append(Content(f"step {warm_start.step:,} of {warm_start.steps:,}"))
        parts.append(_curve(warm_start, width))
    if warm_start.evaluated:
        parts += [Content(""), Content(one_line(comparison_text(warm_start.evaluated, unit)))]
    return Content("\n").join(parts)


def question(facts: DemonstrationsRead, method: Method) -> Content:
    """The figures of a file to train on, and the doubts about it."""
    figures = {"file": facts.path, "method": _method(facts, method)} | (
        fact_lines(facts) if method == "sft" else {}
    )
    lines = [
        Content.assemble((f"{name:<11}", ASIDE), one_line(text)) for name, text in figures.items()
    ]
    against = [
        Content.styled(f"! {one_line(each)}", "$text-warning") for each in doubts(facts, method)
    ]
    return Content("\n\n").join([Content("\n").join(part) for part in (lines, against) if part])


def _method(facts: DemonstrationsRead | None, method: Method) -> str:
    """The method in a sentence, with the number of preferences."""
    if method == "sft":
        return "imitate every reply (SFT)"
    pairs = facts.preferences if facts else 0
    if not pairs:
        return "nothing to prefer (DPO): no reply was replaced by a person; correct some with w, at the wheel"
    return f"prefer a person's reply over the model's (DPO): {counted(pairs, 'preference pair')}"


def _offer(offer: Offer, chosen: bool) -> Content:
    mark = "▶ " if chosen else "  "
    head = Content.assemble((f"{mark}{offer.title}", "bold" if chosen else ""))
    if offer.facts is None:
        return head + Content.styled(f": refused\n  {literal(offer.fault)}", "$text-error")
    return Content.assemble(
        head,
        f": {counted(offer.facts.episodes, 'episode')}, mean return {number(offer.mean_return, 3)}",
    )


def _stage(warm_start: WarmStartState) -> str:
    stage = warm_start.stage
    if warm_start.cancelling and stage in (Stage.REQUESTED, Stage.TRAINING):
        return f"{stage.name.lower()}, to be cancelled"
    words = {
        Stage.REQUESTED: "requested; first the evaluation" if warm_start.evaluates else "requested",
        Stage.TRAINING: "training",
        Stage.EVALUATING: "trained; now the evaluation",
        Stage.REFUSED: "refused; nothing was trained",
    }
    return words.get(stage) or _over(warm_start)


def _over(warm_start: WarmStartState) -> str:
    result = warm_start.result
    if result is None:
        return "the session ended before the training did"
    stats = result.stats
    how = "cancelled" if stats.cancelled else "done"
    what = "episodes" if result.method == "sft" else "preference pairs"
    return f"{how}: {stats.steps:,} steps on {stats.demonstrations:,} {what} in {stats.elapsed_s:,.0f} s"


def _curve(warm_start: WarmStartState, width: int) -> Content:
    losses = warm_start.losses
    if not losses:
        return Content("")
    tail = f" loss {plain(losses[0])} → {plain(losses[-1])}"
    room = max(1, min(CURVE, width - len(tail)))
    return Content.assemble((f"{spark(losses, room):<{room}}", "$primary"), (tail, ASIDE))


EPISODES = 300
"""Episodes of the evaluation before a warm start, and of the one after it."""


class WarmStartDialog(ModalScreen[None]):
    CSS_PATH = ["../widgets/dialogs.tcss", "warm_start.tcss"]
    BINDING_GROUP_TITLE = "Warm start"
    BINDINGS = [
        Binding(
            "up,down",
            "choose",
            "Other file",
            tooltip="Choose the other file.",
            id="warm_start.file",
            key_display="↑↓",
        ),
        Binding(
            "enter,f", "begin", "Train", tooltip="Train on the chosen file.", id="warm_start.begin"
        ),
        Binding(
            "m",
            "method",
            "Method",
            tooltip="Imitate every reply (SFT), or prefer a person's over the model's (DPO).",
            id="warm_start.method",
        ),
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
        self._offers: list[Offer] | None = None
        """None while they are read."""
        self._fault = ""
        self._at = 0
        self._method: Method = "sft"

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
            self._offers = []
            self._fault = str(error)
        self.show(self._state)

    def show(self, state: RunState) -> None:
        self._state = state
        if not self.is_mounted or self not in self.app.screen_stack:
            return  # It opens, or it was left while a thread was at work.
        width = max(20, self.query_one(VerticalScroll).content_size.width)
        self.query_one("#offers", Static).update(self._offers_text())
        self.query_one("#offers", Static).display = not state.warm_start.under_way
        stage = warm_start_text(state.warm_start, width, state.return_unit)
        if state.failure:
            again = f"{key_of(self.app, 'restart', 'r')} starts the trainer again."
            stage += Content.styled(f"\n{literal(state.failure)} {again}", "$text-error")
        self.query_one("#warm-start-state", Static).update(stage)
        self.refresh_bindings()

    def _offers_text(self) -> Content:
        """The files with their faults, or the reason why none can be read."""
        if self._fault:
            return Content.styled(literal(self._fault), "$text-error")
        if self._offers is None:
            return Content.styled("reading and checking the demonstrations …", ASIDE)
        if not self._offers:
            play = literal(key_of(self.app, "table", "h"))
            return Content(f"There are no demonstrations yet: {play} plays some.")
        parts = [_offer(offer, index == self._at) for index, offer in enumerate(self._offers)]
        method = _method(self._offers[self._at].facts, self._method)
        parts.append(Content.assemble(("m  ", "bold $primary"), (method, ASIDE)))
        return Content("\n").join(parts)

    @property
    def _chosen(self) -> Offer | None:
        return self._offers[self._at] if self._offers else None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """One training at a time, on a file without faults."""
        training = self._state.warm_start
        match action:
            case "begin":
                able = self._state.live and self._state.run is not None and not training.under_way
                facts = self._chosen.facts if self._chosen else None
                return (
                    True
                    if able and facts and (self._method == "sft" or facts.preferences)
                    else None
                )
            case "cancel":
                return (
                    True
                    if training.under_way and not training.cancelling and training.result is None
                    else None
                )
        return True

    def action_choose(self) -> None:
        if self._offers:
            self._at = (self._at + 1) % len(self._offers)
            self.show(self._state)

    def action_method(self) -> None:
        self._method = "dpo" if self._method == "sft" else "sft"
        self.show(self._state)

    def action_begin(self) -> None:
        """Ask before the training; where there are doubts, enter means no."""
        if self._chosen is None or (facts := self._chosen.facts) is None:
            return
        asked = CommandAsked(WarmStart(sft_data=facts.path, method=self._method, episodes=EPISODES))
        dialog = CautiousDialog if doubts(facts, self._method) else ConfirmDialog
        dialog("warm start?", question(facts, self._method), yes="train", no="leave it").ask(
            self.app, partial(self.post_message, asked)
        )

    def action_cancel(self) -> None:
        self.post_message(CommandAsked(CancelWarmStart()))
