"""A table for a person: the state drawn, what the agent would see, its actions on keys, where episodes went."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content
from textual.widgets import Input, Static

from llamagym_tui.demos.human_game import MATCH, HumanGame, MatchAgainstModel
from llamagym_tui.errors import LlamaGymError, UsageError
from llamagym_tui.game.choices import OfferedAction
from llamagym_tui.protocol.commands import Evaluate, ProbeActions
from llamagym_tui.protocol.events import ConversationProbed
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.returns import counted, mean_return, signed
from llamagym_tui.screens.conversation.turns import LEAST_REST
from llamagym_tui.screens.conversation.view import ConversationView, TurnInFull
from llamagym_tui.screens.play.choosing import KEY, ChoosingScreen, choices_row, reasoning_input
from llamagym_tui.screens.play.class_table import ahead_of
from llamagym_tui.screens.widgets.command_asked import CommandAsked
from llamagym_tui.screens.widgets.fields import SentenceInput
from llamagym_tui.screens.widgets.fitted import TooSmall
from llamagym_tui.screens.widgets.key_bar import KeyBar, KeyOf, key_of
from llamagym_tui.screens.widgets.look import ASIDE, drawing_content
from llamagym_tui.screens.widgets.numbers import number, share
from llamagym_tui.state.comparison import difference_text
from llamagym_tui.state.prompts import played_by
from llamagym_tui.state.run import RunState

MOST_NAMED = 4
"""Actions shown, the most probable first."""


class PolicyHint:
    """What the policy would do where a person plays, requested once a turn; answers to earlier ones are ignored."""

    def __init__(self) -> None:
        self._requested: list[tuple[object, object]] = []
        """By ticket, from 1: the turn, and the policy that was to answer."""

    def question(self, game: HumanGame, state: RunState) -> ProbeActions | None:
        """The request for this turn; None: nobody can answer, or it was sent already.

        Another update or setting makes it another policy, which is requested again.
        """
        about = (game.place, (state.pid, state.updates, state.marks))
        if game.over or not state.live or state.run is None or self._requested[-1:] == [about]:
            return None
        self._requested.append(about)
        return ProbeActions(ticket=len(self._requested), messages=game.messages)

    def answer(self, game: HumanGame, state: RunState) -> ConversationProbed | None:
        """The newest answer for the present turn."""
        if (found := state.probed) is None or game.over or found.ticket > len(self._requested):
            return None
        return found if self._requested[found.ticket - 1][0] == game.place else None

    def text(self, game: HumanGame, state: RunState) -> str:
        """The policy's probabilities, or why there are none."""
        if (answer := self.answer(game, state)) is not None:
            return probabilities_text(answer)
        if not state.live:
            return "there is no trainer"
        return (
            "the model is still loading"
            if state.run is None
            else "requested; the trainer answers between two steps"
        )


def probabilities_text(probed: ConversationProbed) -> str:
    """The most probable action first."""
    if probed.why_not:
        return probed.why_not
    if not probed.names:
        return "its actions have no names, so it has no probabilities to show"
    ranked = sorted(zip(probed.shares, probed.names, strict=True), key=lambda pair: -pair[0])
    named = [f"{name} {share(probability, 0)}" for probability, name in ranked[:MOST_NAMED]]
    if len(ranked) > MOST_NAMED:
        named.append("…")
    if (rest := 1 - sum(probed.shares)) >= LEAST_REST:
        named.append(f"other replies {share(rest, 0)}")
    return ", ".join(named)


def likeliest(probed: ConversationProbed) -> str:
    """The name of the action that is the most probable one; empty: none is known."""
    pairs = zip(probed.shares, probed.names, strict=True)
    return max(pairs, key=lambda pair: pair[0])[1] if probed.names else ""


def score_text(game: HumanGame, state: RunState) -> Content:
    """This return, the mean so far, and how a match stands."""
    text = f"return now {number(game.score)}"
    if (mean := mean_return(game.returns)) is not None:
        played, total = counted(mean.episodes, "episode"), number(sum(game.returns))
        text += f" · {played}, sum {total}, mean {number(mean.mean, 3)}"
    if game.match is None:
        return Content(text)
    stands = games_text(game.match) if game.against_model else match_text(game.match, state)
    return Content(f"{text}\n{stands}")


def games_text(match: MatchAgainstModel) -> str:
    """How a match stands in which the model is the other player."""
    returns = match.returns
    won = sum(each > 0 for each in returns)
    lost = sum(each < 0 for each in returns)
    so_far = "" if match.is_over else f" of {MATCH}"
    return (
        f"you against the model, {len(returns)}{so_far} games: {won} won, {len(returns) - won - lost} drawn, "
        f"{lost} lost"
    )


def match_text(match: MatchAgainstModel, state: RunState) -> str:
    """How a match stands; at its end both means, and what is known of their difference."""
    if not match.is_over:
        return f"against the model: {len(match.returns)} of {MATCH} episodes played"
    its_part = state.match
    if its_part is None or its_part.seed != match.seed:
        return "against the model: it has not played its episodes"
    model = its_part.played
    by = ahead_of(match.returns, its_part)
    mine, its = signed(sum(match.returns) / MATCH), signed(model.mean_return)
    scores = f"You earn {mine}, the model {its}{played_by(model, state.prompts)}"
    return f"{scores}. You against it: {difference_text(by, one_line(state.return_unit))}."


def saved_text(game: HumanGame, fault: str) -> Content:
    writer = game.writer
    if fault:
        text = fault
    elif writer.fault:
        text = f"{writer.waiting} not saved, kept in memory (ctrl+s tries again): {writer.fault}"
    elif not writer.saved:
        text = f"Finished episodes are appended to {writer.path}"
    else:
        text = f"{counted(writer.saved, 'episode')} saved to {writer.path}"
    return Content(one_line(text))


MAKING = "making the environment …"


class HumanTableScreen(ChoosingScreen[None]):
    CSS_PATH = "table.tcss"
    ABOUT = "every finished episode becomes a demonstration"
    BINDING_GROUP_TITLE = "Table"
    BINDINGS = [
        Binding(
            "enter",
            "end_reason",
            "Done",
            tooltip="Leave the sentence.",
            id="table.done",
            priority=True,
        ),
        Binding(
            "enter",
            "next",
            "Next",
            tooltip="Begin the next episode.",
            id="table.next",
            priority=True,
        ),
        Binding("space", "next", "Next", tooltip="Begin the next episode.", show=False),
        Binding(
            "backspace",
            "discard",
            "Discard",
            tooltip="Take the episode out of your file.",
            id="table.discard",
        ),
        Binding(
            "backspace", "keep", "Keep", tooltip="Keep the episode after all.", id="table.keep"
        ),
        Binding(
            "tab",
            "reason",
            "Say why",
            tooltip="Add a sentence that the reply begins with.",
            id="table.reason",
        ),
        Binding(
            "ctrl+e",
            "hint",
            "Hint",
            tooltip="Show or hide what policy and expert would do.",
            id="table.hint",
        ),
        Binding(
            "ctrl+g",
            "match",
            "Against the model",
            tooltip="Both play the same 20 episodes; in a game for two, 20 games of you against it.",
            id="table.match",
        ),
        Binding(
            "ctrl+s",
            "save",
            "Save again",
            tooltip="Write the episodes that are not on disk.",
            id="table.save",
        ),
        Binding(
            "question_mark", "app.help", "Help", tooltip="What the keys do.", id="help", show=False
        ),
        Binding(
            "escape",
            "leave",
            "Back",
            tooltip="Back to the playground; the table stays.",
            id="table.leave",
        ),
    ]

    def __init__(
        self, game: HumanGame, title: str, policy_hint: PolicyHint, state: RunState
    ) -> None:
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
        header = Content.assemble(
            (" YOU PLAY ", "bold $background on $accent"),
            (f" {one_line(self._title)}", "bold"),
            (f" · {self.ABOUT}", ASIDE),
        )
        yield Static(header, id="table-header", markup=False)
        yield Static(id="drawing", markup=False)
        table = ConversationView(id="table", by_person=True, placeholder=MAKING)
        table.shows_newest = True
        yield table
        yield TurnInFull(table)
        yield Static(id="choices", markup=False)
        yield reasoning_input("reasoning")
        yield Static(id="hint", markup=False)
        yield Static(id="score", markup=False)
        yield Static(id="saved", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one(SentenceInput).value = self._game.reasoning
        self.draw()
        self._open()

    def show(self, state: RunState) -> None:
        """Take in another state of the run: it may hold the policy's answer."""
        self._state = state
        self._let_model_act()
        self._show_hint()
        self.update_text("score", score_text(self._game, state))

    @work(exclusive=True, group="table")
    async def _open(self) -> None:
        with self._showing_faults():
            await asyncio.to_thread(self._game.open)
            self._opened = True
            if self._game.over and self.begins_at_once:
                self._game.deal()
        self._let_model_act()

    @property
    def choices(self) -> tuple[OfferedAction, ...]:
        return () if self._game.over else self._game.choices

    @property
    def begins_at_once(self) -> bool:
        """Whether an episode begins as soon as the table is open."""
        return not self._game.returns

    @property
    def next_words(self) -> str:
        """What comes after the episode that is over."""
        return "next episode"

    def what_of_last(self, key: KeyOf) -> str:
        """What has become of the episode that is over."""
        if self._game.last is None:
            return ""
        if self._game.discarded:
            return f"Discarded: {key('table.keep', 'backspace')} keeps it after all."
        return f"Kept: {key('table.discard', 'backspace')} discards it."

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
                able = (
                    self._opened and game.over and self._state.live and self._state.run is not None
                )
                return True if able and self._state.pending.evaluation is None else None
            case "save":
                return game.writer.waiting > 0
        return True

    def action_choose(self, index: int) -> None:
        if not self._opened or index >= len(self.choices):
            return
        sentence, choice = self.query_one(SentenceInput), self.choices[index]
        with self._showing_faults():
            if self._game.act(choice.action, sentence.value):
                self.action_save()
            sentence.value = ""
        self._let_model_act()

    def _let_model_act(self) -> None:
        """Ask for the model's move where it is to move, and make it once it is there: the likeliest action."""
        game = self._game
        if not (self._opened and game.awaits_model):
            return
        if (question := self._policy_hint.question(game, self._state)) is not None:
            self.post_message(CommandAsked(question))
        answer = self._policy_hint.answer(game, self._state)
        if answer is None:
            return
        with self._showing_faults():
            if not (name := likeliest(answer)):
                raise UsageError(f"The model makes no move: {probabilities_text(answer)}.")
            if game.let_model_act(name):
                self.action_save()

    def action_match(self) -> None:
        seed = self._game.next_seed()
        self._game.match = MatchAgainstModel(seed, [])
        if self._game.against_model:
            self.action_next()
            return
        self.post_message(CommandAsked(Evaluate(episodes=MATCH, seed=seed)))
        self.action_next()

    def action_next(self) -> None:
        if self._opened and self._game.over:
            with self._showing_faults():
                self._game.deal()
            self._let_model_act()

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
        table.placeholder = "This environment cannot be played." if self._fault else MAKING
        table.show(game.transcript.entries)
        drawing = self.query_one("#drawing", Static)
        drawing.display = bool(game.drawing.text)
        drawing.update(drawing_content(self.app, *game.drawing))
        self.update_text("choices", self._choices_text() if self._opened else "")
        self.show_sentence()
        self._show_hint()
        self.update_text("score", score_text(game, self._state))
        saved = self.query_one("#saved", Static)
        saved.update(saved_text(game, self._fault))
        saved.set_class(bool(game.writer.fault or self._fault), "-fault")
        self.refresh_bindings()

    def _choices_text(self) -> Content:
        """The actions on their keys, and under them what a key does now."""
        game, key = self._game, partial(key_of, self.app)
        if game.awaits_model:
            actions = Content("The model is to move.")
            now = self._policy_hint.text(game, self._state)
        elif not game.over:
            actions, now = choices_row(game.choices, None), self.how_to_choose("table")
        else:
            result = f"The episode is over: return {number(game.score)}.  " if game.returns else ""
            actions = Content.assemble(
                (result, "bold"), (f" {key('table.next', 'enter')} ", KEY), f" {self.next_words}"
            )
            now = self.what_of_last(key)
        return Content("\n").join([actions, Content.styled(now, ASIDE)])

    def _show_hint(self) -> None:
        """Show what policy and expert would do, and request the policy's answer once for each turn."""
        game, hint = self._game, self.query_one("#hint", Static)
        hint.display = self._hints and not game.over and not game.awaits_model
        if not hint.display:
            return
        if (question := self._policy_hint.question(game, self._state)) is not None:
            self.post_message(CommandAsked(question))
        text = f"policy: {one_line(self._policy_hint.text(game, self._state))}"
        if game.has_expert:
            text += f"; expert: {one_line(game.hint()) or 'no action for this state'}"
        hint.update(Content.styled(text, "$text-accent italic"))
