"""The warm start: a choice of demonstrations, and its progress. It goes on when the dialog is closed."""

import asyncio
from functools import partial
from typing import Literal, NamedTuple

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from llamagym_tui.demos.training_data import (
    doubts,
    fact_lines,
    shipped,
    training_data,
    training_facts,
)
from llamagym_tui.errors import LlamaGymError
from llamagym_tui.protocol.commands import CancelWarmStart, WarmStart
from llamagym_tui.protocol.events import DemonstrationsRead
from llamagym_tui.protocol.literal import literal, one_line
from llamagym_tui.screens.widgets.dialogs import CautiousDialog, ConfirmDialog, Dialog
from llamagym_tui.screens.widgets.fields import Words
from llamagym_tui.screens.widgets.frame import CommandAsked, OfRun
from llamagym_tui.screens.widgets.key_bar import key_of
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.screens.widgets.numbers import number, plain, spark
from llamagym_tui.setup.run_agent import RunAgent
from llamagym_tui.state.returns import counted
from llamagym_tui.state.run import RunState
from llamagym_tui.state.texts import comparison_text
from llamagym_tui.state.texts import warm_start_text as finished_text

Method = Literal["sft", "dpo"]
METHODS: dict[Method, str] = {
    "sft": "imitate every reply (SFT)",
    "dpo": "prefer a person's reply over the model's (DPO)",
}
CURVE = 60
"""Cells of the loss curve at most."""


class Offer(NamedTuple):
    """A file of demonstrations, and a way to train on it."""

    title: str
    facts: DemonstrationsRead | None
    """None if it cannot be trained on."""
    method: Method = "sft"
    """Imitate the replies, or prefer a person's over the model's."""
    fault: str = ""
    """The reason why it cannot be trained on; empty if it can."""


def offers(agent: RunAgent, system_prompt: str) -> list[Offer]:
    """The files for a warm start, each checked as a whole; this may take a moment."""
    places = [
        (agent.demos_path(), "recorded by you"),
        (shipped(agent.agent), "shipped with the agent"),
    ]
    found = []
    for path, title in places:
        if path is None or not path.is_file():
            continue
        try:
            data = training_data(agent.agent, path)
        except LlamaGymError as error:
            found.append(Offer(title, None, fault=str(error)))
            continue
        facts = training_facts(data, agent.agent, system_prompt)
        returns = [demo.episode_return for demo in data.demonstrations]
        mean = number(sum(returns) / len(returns), 3)
        episodes = f"{title}: {counted(facts.episodes, 'episode')}, mean return {mean}"
        found.append(Offer(episodes, facts))
        if facts.preferences:
            pairs = f"{title}: {counted(facts.preferences, 'preference pair')}"
            found.append(Offer(pairs, facts, "dpo"))
    return found


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
    else:
        figures["pairs"] = f"{facts.preferences:,}"
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


class WarmStartDialog(OfRun, Dialog[None]):
    CSS_PATH = "warm_start.tcss"
    FRAME = VerticalScroll
    heading = "warm start"
    BINDING_GROUP_TITLE = "Warm start"
    BINDINGS = [
        Binding(
            "x",
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
            tooltip="Back; the training is not ended.",
            id="warm_start.close",
        ),
    ]

    def __init__(self, state: RunState, agent: RunAgent) -> None:
        super().__init__(state)
        self._agent = agent
        self._offers: list[Offer] = []

    def body(self) -> ComposeResult:
        yield Words("reading and checking the demonstrations …", id="no-offers")
        yield OfferList(id="offers", markup=False)
        yield Words(id="warm-start-state")

    def on_mount(self) -> None:
        self._read_offers()

    @work(exclusive=True)
    async def _read_offers(self) -> None:
        none = self.query_one("#no-offers", Words)
        try:
            prompt = self._state.system_prompt or ""
            self._offers = await asyncio.to_thread(offers, self._agent, prompt)
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
        choices = self.query_one(OfferList)
        choices.display = not state.is_warm_starting and bool(self._offers)
        if choices.display:
            choices.focus()
        stage = warm_start_text(state, width)
        if state.failure:
            again = f"{key_of(self.app, 'restart', 'r')} resumes from the last checkpoint."
            stage += Content.styled(f"\n{literal(state.failure)} {again}", "$text-error")
        self.query_one("#warm-start-state", Words).update(stage)
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
        offer = self._offers[event.option_index]
        facts, method = offer.facts, offer.method
        if facts is None or not self._state.live or self._state.run is None:
            return
        asked = CommandAsked(WarmStart(sft_data=facts.path, method=method, episodes=EPISODES))
        dialog = CautiousDialog if doubts(facts, method) else ConfirmDialog
        dialog("warm start?", question(facts, method), yes="train", no="leave it").ask(
            self.app, partial(self.post_message, asked)
        )

    def action_cancel(self) -> None:
        self.post_message(CommandAsked(CancelWarmStart()))
