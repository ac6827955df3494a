"""A table for a person, who plays episodes that become demonstrations, alone or against the model."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from textual import work
from textual.binding import Binding
from textual.content import Content
from textual.widgets import Static

from llamagym_tui.demos.human_game import MATCH, HumanGame, MatchAgainstModel
from llamagym_tui.errors import LlamaGymError, UsageError
from llamagym_tui.game.choices import OfferedAction
from llamagym_tui.protocol.commands import ProbeActions
from llamagym_tui.protocol.events import ConversationProbed
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.conversation.turns import LEAST_REST
from llamagym_tui.screens.conversation.view import ConversationView
from llamagym_tui.screens.play.choosing import KEY, ChoosingScreen, choices_row
from llamagym_tui.screens.play.classroom import ahead_of
from llamagym_tui.screens.widgets.command_asked import CommandAsked
from llamagym_tui.screens.widgets.key_bar import key_of
from llamagym_tui.screens.widgets.look import ASIDE, drawing_content
from llamagym_tui.screens.widgets.numbers import number, share
from llamagym_tui.state.comparison import difference_text
from llamagym_tui.state.prompts import played_by
from llamagym_tui.state.returns import counted, mean_return, signed
from llamagym_tui.state.run import RunState

MOST_NAMED = 4
"""The number of probable actions that are named."""


class PolicyHint:
    """The policy's probabilities where a person plays, requested once a turn; earlier answers are ignored."""

    def __init__(self) -> None:
        self._requested: list[tuple[object, object]] = []
        """The turn and the policy of each request; the ticket is its place, from 1."""

    def question(self, game: HumanGame, state: RunState) -> ProbeActions | None:
        """The request for this turn; None if nobody can answer, or it was sent already.

        After an update or a change of a setting it is sent again.
        """
        about = (game.place, (state.pid, state.updates, state.marks))
        if game.over or not state.live or state.run is None or self._requested[-1:] == [about]:
            return None
        self._requested.append(about)
        return ProbeActions(ticket=len(self._requested), messages=game.messages)

    def answer(self, game: HumanGame, state: RunState) -> ConversationProbed | None:
        """The answer for the present turn."""
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
    """The name of the most probable action; empty if none is known."""
    pairs = zip(probed.shares, probed.names, strict=True)
    return max(pairs, key=lambda pair: pair[0])[1] if probed.names else ""


def score_text(game: HumanGame, state: RunState) -> Content:
    """This return, the mean so far, and the score against the model."""
    text = f"return now {number(game.score)}"
    if (mean := mean_return(game.returns)) is not None:
        played, total = counted(mean.episodes, "episode"), number(sum(game.returns))
        text += f" · {played}, sum {total}, mean {number(mean.mean, 3)}"
    if game.match is not None:
        text += f"\n{match_text(game.match, state)}"
    elif game.against_model:
        text += f"\n{games_text(game.returns)}"
    return Content.styled(text, ASIDE)


def games_text(returns: Sequence[float]) -> str:
    """The score of games in which the model is the other player."""
    won = sum(each > 0 for each in returns)
    lost = sum(each < 0 for each in returns)
    return f"you against the model: {won} won, {len(returns) - won - lost} drawn, {lost} lost"


def match_text(match: MatchAgainstModel, state: RunState) -> str:
    """The score of a match; at its end both means and the interval of their difference."""
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
    """The file of the episodes, or a fault."""
    writer = game.writer
    if fault:
        text = fault
    elif writer.fault:
        text = f"{writer.waiting} not saved; the next episode tries again: {writer.fault}"
    elif not writer.saved:
        text = f"Finished episodes are appended to {writer.path}"
    else:
        text = f"{counted(writer.saved, 'episode')} saved to {writer.path}"
    return Content.styled(one_line(text), "$text-error" if fault or writer.fault else ASIDE)


MAKING = "making the environment …"


class HumanTableScreen(ChoosingScreen):
    BY_PERSON = True
    ABOUT = "every finished episode becomes a demonstration"
    BINDING_GROUP_TITLE = "Table"
    BINDINGS = [
        Binding(
            "enter,space",
            "next",
            "Next",
            tooltip="Begin the next episode.",
            id="table.next",
            priority=True,
        ),
        Binding(
            "ctrl+e",
            "hint",
            "Hint",
            tooltip="Show or hide the action of the policy and of the expert.",
            id="table.hint",
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

    def on_mount(self) -> None:
        self.draw()
        self._open()

    def show(self, state: RunState) -> None:
        """Take in another state of the run, which may hold the policy's answer."""
        self._state = state
        self._let_model_act()
        self.draw()

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
        """True if an episode begins as soon as the table is open."""
        return not self._game.returns

    @property
    def next_words(self) -> str:
        """The name of what follows an episode."""
        return "next episode"

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self._opened and self._game.over if action == "next" else True

    def action_choose(self, index: int) -> None:
        if not self._opened or index >= len(self.choices):
            return
        with self._showing_faults():
            if self._game.act(self.choices[index].action):
                self._save()
        self._let_model_act()

    def _let_model_act(self) -> None:
        """Where the model is to move, ask for its move; once that is there, make the likeliest."""
        game = self._game
        if not (self._opened and game.awaits_model):
            return
        self._ask_policy()
        answer = self._policy_hint.answer(game, self._state)
        if answer is None:
            return
        with self._showing_faults():
            if not (name := likeliest(answer)):
                raise UsageError(f"The model makes no move: {probabilities_text(answer)}.")
            if game.let_model_act(name):
                self._save()

    def _ask_policy(self) -> None:
        question = self._policy_hint.question(self._game, self._state)
        if question is not None:
            self.post_message(CommandAsked(question))

    def action_next(self) -> None:
        if self._opened and self._game.over:
            with self._showing_faults():
                self._game.deal()
            self._let_model_act()

    def action_hint(self) -> None:
        self._hints = not self._hints
        self.draw()

    @work(group="save")
    async def _save(self) -> None:
        await asyncio.to_thread(self._game.writer.save)
        self.draw()

    def action_leave(self) -> None:
        """Back to the playground; the episode under way waits."""
        self.dismiss()

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
        drawing = self.query_one("#play-drawing", Static)
        drawing.display = bool(game.drawing.text)
        drawing.update(drawing_content(self.app, *game.drawing))
        header = Content.assemble(
            (" YOU PLAY ", "bold $background on $accent"),
            (f" {one_line(self._title)}", "bold"),
            (f" · {self.ABOUT}", ASIDE),
        )
        notes = [
            self._hint(),
            score_text(game, self._state),
            saved_text(game, self._fault),
        ]
        self.draw_play(header, *self._actions(), [note for note in notes if note])

    def _actions(self) -> tuple[Content, str]:
        """The actions on their keys, and a line on what a key does now."""
        game = self._game
        if not self._opened:
            return Content(""), ""
        if game.awaits_model:
            return Content("The model is to move."), self._policy_hint.text(game, self._state)
        if not game.over:
            return choices_row(game.choices), self.how_to_choose
        result = f"The episode is over: return {number(game.score)}.  " if game.returns else ""
        key = key_of(self.app, "table.next", "enter")
        return Content.assemble((result, "bold"), (f" {key} ", KEY), f" {self.next_words}"), ""

    def _hint(self) -> Content:
        """The actions of the policy and of the expert; the policy is asked once for each turn."""
        game = self._game
        if not self._hints or game.over or game.awaits_model:
            return Content("")
        self._ask_policy()
        text = f"policy: {one_line(self._policy_hint.text(game, self._state))}"
        if game.has_expert:
            text += f"; expert: {one_line(game.hint()) or 'no action for this state'}"
        return Content.styled(text, "$text-accent italic")
