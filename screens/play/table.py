"""A table at which a person plays, alone or against the model, or a seat of a class; and what records the episodes."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from zlib import crc32

from msgspec.structs import replace
from textual import work
from textual.binding import Binding
from textual.content import Content
from textual.widgets import Static

from llamagym_tui.demos.demonstration import Demonstration
from llamagym_tui.demos.files import DemoWriter
from llamagym_tui.demos.human_game import MATCH, HumanGame, MatchAgainstModel
from llamagym_tui.errors import LlamaGymError, UsageError
from llamagym_tui.game.choices import OfferedAction
from llamagym_tui.game.large_drawing import large_drawing
from llamagym_tui.protocol.commands import ProbeActions
from llamagym_tui.protocol.events import ConversationProbed, EpisodeCorrected
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.conversation.view import ConversationView
from llamagym_tui.screens.play.choosing import KEY, ChoosingScreen, choices_row
from llamagym_tui.screens.play.classroom import Classroom, ahead_of
from llamagym_tui.screens.widgets.dialogs import ConfirmDialog
from llamagym_tui.screens.widgets.frame import HELP_KEY, CommandAsked
from llamagym_tui.screens.widgets.key_bar import key_of
from llamagym_tui.screens.widgets.look import ASIDE, drawing_content, heading
from llamagym_tui.screens.widgets.numbers import number
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


def score_text(game: HumanGame, state: RunState) -> Content:
    """This return, the mean so far, and the score against the model."""
    text = f"return now {number(game.score)}"
    if (mean := mean_return(game.returns)) is not None:
        played, total = counted(mean.episodes, "episode"), number(sum(game.returns))
        text += f" · {played}, sum {total}, mean {number(mean.mean, 3)}"
    if game.match is not None:
        text += f"\n{match_text(game.match, state)}"
    elif game.against_model:
        won, lost = (sum(sign * each > 0 for each in game.returns) for sign in (1, -1))
        drawn = len(game.returns) - won - lost
        text += f"\nyou against the model: {won} won, {drawn} drawn, {lost} lost"
    return Content.styled(text, ASIDE)


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


ROOM = (60, 4)
"""Columns and rows for cards."""
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
        HELP_KEY,
        Binding(
            "escape",
            "leave",
            "Back",
            tooltip="Back to the playground; the table stays.",
            id="table.leave",
        ),
    ]

    def __init__(self, game: HumanGame, title: str, state: RunState) -> None:
        super().__init__(state)
        self._game = game
        self._title = title
        self._fault = ""
        self._opened = False

    def on_mount(self) -> None:
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
        game, state = self._game, self._state
        if not (self._opened and game.awaits_model):
            return
        asked, answer = question(game), state.probed
        if answer is not None and answer.ticket == asked.ticket:
            with self._showing_faults():
                if game.let_model_act(likeliest(answer)):
                    self._save()
        elif state.run is not None:
            self.post_message(CommandAsked(asked))

    def action_next(self) -> None:
        if self._opened and self._game.over:
            with self._showing_faults():
                self._game.deal()
            self._let_model_act()

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
        drawing.update(drawing_content(self.app, *large_drawing(*game.drawing, *ROOM)))
        header = heading("YOU PLAY", one_line(self._title), f" · {self.ABOUT}")
        notes = [score_text(game, self._state), saved_text(game, self._fault)]
        self.draw_play(header, *self._actions(), notes)

    def _actions(self) -> tuple[Content, str]:
        """The actions on their keys, and a line on what a key does now."""
        game = self._game
        if not self._opened:
            return Content(""), ""
        if game.awaits_model:
            is_there = self._state.live and self._state.run is not None
            now = "requested" if is_there else "there is no trainer, or its model is still loading"
            return Content("The model is to move."), now
        if not game.over:
            return choices_row(game.choices), self.how_to_choose
        result = f"The episode is over: return {number(game.score)}.  " if game.returns else ""
        key = key_of(self.app, "table.next", "enter")
        return Content.assemble((result, "bold"), (f" {key} ", KEY), f" {self.next_words}"), ""


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
        if action == "leave":
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
