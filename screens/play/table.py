"""A table at which a person plays, alone or against the model, or a seat of a class; and what records the episodes."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from zlib import crc32

from msgspec.structs import replace
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content

from llamagym_tui.demos.demonstration import Demonstration
from llamagym_tui.demos.files import DemoWriter
from llamagym_tui.demos.human_game import MATCH, HumanGame, MatchAgainstModel
from llamagym_tui.errors import LlamaGymError, UsageError
from llamagym_tui.game.choices import OfferedAction
from llamagym_tui.protocol.commands import ProbeActions
from llamagym_tui.protocol.events import ConversationProbed, EpisodeCorrected
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.conversation.turns import return_text
from llamagym_tui.screens.conversation.view import ConversationView
from llamagym_tui.screens.play.choosing import (
    KEY,
    Board,
    ChoosingScreen,
    choices_row,
    would_do,
)
from llamagym_tui.screens.play.classroom import Classroom, ahead_of
from llamagym_tui.screens.widgets.dialogs import ConfirmDialog
from llamagym_tui.screens.widgets.fields import SentenceInput
from llamagym_tui.screens.widgets.frame import HELP_KEY, CommandAsked
from llamagym_tui.screens.widgets.key_bar import key_of
from llamagym_tui.screens.widgets.look import ASIDE, heading
from llamagym_tui.screens.widgets.numbers import number, plain
from llamagym_tui.setup.run_agent import RunAgent
from llamagym_tui.state.prompts import played_by
from llamagym_tui.state.returns import counted, mean_return, signed
from llamagym_tui.state.run import RunState, initial_state
from llamagym_tui.state.texts import difference_text


def question(game: HumanGame) -> ProbeActions:
    """The request for the model's move; its ticket is of the turn alone, so that no older answer counts."""
    return ProbeActions(ticket=crc32(repr(game.place).encode()), messages=game.messages)


def likeliest(probed: ConversationProbed) -> str:
    """The name of the most probable action. Raises UsageError if none is known."""
    if not probed.names:
        why = probed.why_not or "its actions have no names"
        raise UsageError(f"The model makes no move: {why}.")
    return max(zip(probed.shares, probed.names, strict=True))[1]


def outcome(game: HumanGame) -> tuple[str, str]:
    """What came of the episode, and the style of these words."""
    text, style = return_text(game.score)
    if not game.is_won_or_lost:
        return f"return {text}", style
    if not game.score:
        return "draw", style
    return f"{'won' if game.score > 0 else 'lost'} {number(game.score)}", style


def score_text(game: HumanGame, state: RunState) -> str:
    """The person's score, and the model's."""
    returns = game.returns
    if game.match is not None:
        return match_text(game.match, state)
    if game.is_won_or_lost:
        won, lost = (sum(sign * each > 0 for each in returns) for sign in (1, -1))
        yours = f"{won} won, {lost} lost, {len(returns) - won - lost} drawn"
        if game.against_model:
            return f"you against the model: {yours}"
        yours += f", {number(sum(returns))} in all"
    else:
        mean = mean_return(returns)
        yours = counted(len(returns), "episode")
        yours += f", mean {number(mean.mean, 3)}" if mean is not None else ""
    its = state.exact_return
    if its is None and state.recent_mean is not None:
        its = state.recent_mean.mean
    model = "" if its is None else f"   ·   model  {plain(its)} {one_line(state.return_unit)}"
    return f"you  {yours}{model}"


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
            "colon",
            "write",
            "Write a reply",
            tooltip="Write a reply as the model would, and see how it is read.",
            id="table.write",
        ),
        HELP_KEY,
        Binding(
            "escape",
            "leave",
            "Back",
            tooltip="Back to where you came from; the table stays.",
            id="table.leave",
        ),
    ]

    def __init__(self, game: HumanGame, title: str, state: RunState) -> None:
        super().__init__(state)
        self._game = game
        self._title = title
        self._fault = ""
        self._opened = False
        self._answers: dict[int, ConversationProbed | None] = {}
        """What the model would do in each turn of this episode, by its ticket; None: it was asked."""
        self._taken: tuple[int, str] | None = None
        """The ticket of the person's last turn, and the action or the reply."""
        self._writes = False
        """True while a reply is written although actions have keys."""

    def body(self) -> ComposeResult:
        yield from super().body()
        yield SentenceInput(id="play-reply", placeholder="a reply, as the model would write it")

    def on_mount(self) -> None:
        self._open()

    def show(self, state: RunState) -> None:
        """Take in another state of the run, which may hold the policy's answer."""
        self._state = state
        if state.probed is not None and state.probed.ticket in self._answers:
            self._answers[state.probed.ticket] = state.probed
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
        if action == "write":
            return True if self.choices else None
        return self._opened and self._game.over if action == "next" else True

    def action_choose(self, index: int) -> None:
        if not self._opened or index >= len(self.choices):
            return
        chosen = self.choices[index]
        self._take(chosen.name, partial(self._game.act, chosen.action))

    def action_write(self) -> None:
        self._writes = not self._writes
        self.draw()

    @on(SentenceInput.Submitted)
    def _say(self, event: SentenceInput.Submitted) -> None:
        self._take(event.value, partial(self._game.say, event.value))
        if self._fault:
            event.input.select_all()  # What is typed next replaces it.
        else:
            event.input.clear()

    def _take(self, name: str, action: Callable[[], bool]) -> None:
        """Take an action of that name, which returns True at the end of the episode."""
        self._taken = (question(self._game).ticket, name)
        with self._showing_faults():
            if action():
                self._save()
        self._let_model_act()

    def _let_model_act(self) -> None:
        """Where the model is to move, ask for its move; once that is there, make the likeliest."""
        game, state = self._game, self._state
        if not self._opened:
            return
        if not game.awaits_model:
            self._ask_what_it_would_do()
            return
        asked, answer = question(game), state.probed
        if answer is not None and answer.ticket == asked.ticket:
            with self._showing_faults():
                if game.let_model_act(likeliest(answer)):
                    self._save()
        elif state.run is not None:
            self.post_message(CommandAsked(asked))

    def _ask_what_it_would_do(self) -> None:
        """Ask for the model's probabilities in the person's turn, which are shown once that is over."""
        state = self._state
        if self._game.over or not state.live or state.run is None:
            return
        asked = question(self._game)
        if asked.ticket not in self._answers:
            self._answers[asked.ticket] = None
            self.post_message(CommandAsked(asked))

    def action_next(self) -> None:
        if self._opened and self._game.over:
            self._taken = None
            self._answers = {}
            with self._showing_faults():
                self._game.deal()
            self._let_model_act()

    @work(group="save")
    async def _save(self) -> None:
        await asyncio.to_thread(self._game.writer.save)
        self.draw()

    async def action_leave(self) -> None:
        """Stop writing a reply; else back, where the episode under way waits, or out of an app of this table alone."""
        if self._writes and self.choices:
            self.action_write()
        elif self.app.screen_stack[0] is self:
            await self.app.run_action("app.quit")
        else:
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
        board = self.query_one(Board)
        board.show(game.drawing, game.seen or table.placeholder, self.choices)
        header = heading("YOU PLAY", one_line(self._title), f" · {self.ABOUT}")
        notes = [Content.styled(score_text(game, self._state), "bold")]
        if self.is_told or self._fault or game.writer.fault:
            notes.append(saved_text(game, self._fault))
        reply = self.query_one(SentenceInput)
        is_turn = self._opened and not game.over and not game.awaits_model
        reply.display = is_turn and (self._writes or not game.choices)
        if reply.display:
            reply.focus()
        actions, now = self._actions(has_chips=self.is_told or not board.has_all_keys)
        self.draw_play(header, self._result(), actions, now, notes)

    def _result(self) -> Content:
        """The person's last action, what it earned at the end, and what the model would have done."""
        if self._taken is None:
            return Content("")
        ticket, name = self._taken
        you = Content.assemble(("you ", ASIDE), (one_line(name), "bold"))
        if self._game.over:
            words, style = outcome(self._game)
            you += Content.assemble("   ", (words, style))
        answer = self._answers.get(ticket)
        if answer is None or not answer.names:
            return you
        return you + "\n" + would_do(answer.names, answer.shares, self.app.size.width - 2)

    def _actions(self, *, has_chips: bool) -> tuple[Content, str]:
        """The actions on their keys, and a line on what a key does now."""
        game = self._game
        if not self._opened:
            return Content(""), ""
        if game.awaits_model:
            is_there = self._state.live and self._state.run is not None
            now = "requested" if is_there else "there is no trainer, or its model is still loading"
            return Content("The model is to move."), now
        if not game.over:
            if has_chips:
                row = choices_row(game.choices, self.app.size.width - 2)
                is_written = self.query_one(SentenceInput).display
                return row, "enter sends the reply" if is_written else self.how_to_choose
            return Content("Click a field, or type its number."), self.how_to_choose
        key = key_of(self.app, "table.next", "enter")
        return Content.assemble((f" {key} ", KEY), f" {self.next_words}"), ""


class SeatScreen(HumanTableScreen):
    ABOUT = "each episode counts as it is played; the model has played the same ones"
    BINDING_GROUP_TITLE = "Seat"

    def __init__(self, game: HumanGame, title: str, classroom: Classroom, seat: int) -> None:
        """A seat, with the episodes that were played at it; the class has the model's part of the match."""
        record = classroom.record
        state = replace(initial_state(record.config), match=record.match)
        super().__init__(game, f"{title} · seat {seat}", state)
        self._match = classroom.match_of(seat)
        self._classroom = classroom
        self._seat = seat
        game.match = self._match
        game.returns.extend(self._match.returns)

    @property
    def begins_at_once(self) -> bool:
        return not self._match.is_over

    @property
    def next_words(self) -> str:
        return "the class and the model" if self._match.is_over else "next episode"

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("leave", "write"):
            return False
        return super().check_action(action, parameters)

    def action_next(self) -> None:
        if not self._match.is_over:
            super().action_next()
            return
        with self._showing_faults():
            table = "\n".join(self._classroom.table(self._seat))
            own = match_text(self._match, self._state)
            dialog = ConfirmDialog("the class", own, Content(table), yes="look again", no="back")
            dialog.ask(self.app, self.action_next)


class DemoRecorder:
    """The recorder of one agent's demonstrations."""

    def __init__(
        self, agent: RunAgent, *, clock: Callable[[], datetime], next_seed: Callable[[], int]
    ) -> None:
        self._agent = agent
        self._clock = clock
        self._next_seed = next_seed
        self.writer = DemoWriter(agent.demos_path())
        self.game: HumanGame | None = None

    def table(self, system_prompt: Callable[[], str], *, against_model: bool = False) -> HumanGame:
        """The person's game, as it was left; `against_model` is that of `HumanGame`."""
        if self.game is None:
            self.game = HumanGame(
                self._agent.agent,
                self._agent.name,
                self.writer,
                system_prompt=system_prompt,
                next_seed=self._next_seed,
                clock=self._clock,
                against_model=against_model,
            )
        return self.game

    def add(self, event: EpisodeCorrected, model: str) -> None:
        """Record an episode in which a person had the wheel; it waits to be saved."""
        agent = self._agent
        self.writer.add(
            Demonstration.of_correction(
                agent.agent, agent.name, event, model=model, recorded_at=self._clock()
            )
        )

    def close(self) -> None:
        """Close the game, and write the episodes that wait."""
        if self.writer.waiting:
            self.writer.save()
        if self.game is not None:
            self.game.close()
