"""The app's actions around past runs: list, compare, replay, resume; and the tour of a first start."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from textual import work
from textual.content import Content
from textual.screen import Screen
from textual.worker import Worker

from llamagym_tui.app.personal import PersonalApp
from llamagym_tui.config import RunConfig
from llamagym_tui.errors import UntrustedAgent
from llamagym_tui.setup.run_agent import RunAgent
from llamagym_tui.state.run import RunState

if TYPE_CHECKING:
    from textual.actions import ActionParseResult

    from llamagym_tui.screens.past_runs.branch import Branch
    from llamagym_tui.screens.past_runs.home import HomeScreen
    from llamagym_tui.screens.past_runs.replay import ReplayScreen
    from llamagym_tui.screens.past_runs.run_list import RunList


class PastRunActions(PersonalApp):
    REFUSED_IN_BROWSER: ClassVar = {"watch": {"runs"}}
    """Who watches a run is shown no other."""
    config: RunConfig | None
    run_state: RunState | None
    _agent: RunAgent
    _take_in: Callable[[RunState], None]
    open_run: Callable[[RunConfig], None]
    is_newcomer = False
    """Whether this is the first start, whose first run begins at a pace to watch."""
    lesson: str | None = None
    """Name of the lesson that is played."""
    guessed = 0
    """Number of what was guessed before it; 0: nothing."""
    used_in_lesson: frozenset[str] = frozenset()
    """Ids of the bindings that were used since it began."""
    _recalling: Worker[None] | None = None

    def make_replay(self, run_dir: str | Path) -> ReplayScreen:
        """The screen of a recorded run, which is the app's run until it is left.

        Raises:
            RunStoreError: the folder holds no run.
        """
        from llamagym_tui.screens.past_runs.replay import ReplayScreen
        from llamagym_tui.state.replay import Recording

        recording = Recording(run_dir)
        self._agent = RunAgent(recording.config.agent, config=recording.config, may_run_code=False)
        screen = ReplayScreen(recording)
        self.run_state = screen.player.state
        return screen

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "lesson":
            return self.lesson is not None
        if action == "edit_prompt" and self.run_state is not None and self.run_state.recorded:
            return None
        return super().check_action(action, parameters)

    def action_runs(self) -> None:
        from llamagym_tui.screens.past_runs.runs import RunsScreen

        self.push_screen(RunsScreen(run_is_open=self.run_state is not None))

    def action_lessons(self) -> None:
        from llamagym_tui.setup.lessons import lessons

        with self.errors_shown():
            listed = enumerate(lessons().items(), 1)
            rows = [
                (f"{at}. {known.title}", partial(self._offer, name), known.shows)
                for at, (name, known) in listed
            ]
            self.search_commands(rows, "Lessons: short guided experiments")

    def _offer(self, name: str) -> None:
        from llamagym_tui.setup.lessons import begun

        def play(guessed: int | None) -> None:
            if guessed is None:
                return
            with self.errors_shown():
                self.open_run(begun(name))
                self.lesson = name
                self.guessed = guessed
                self.used_in_lesson = frozenset()

        self._ask_for_guess(name, play)

    def begin_lesson(self) -> None:
        """Show the lesson whose run has begun, and ask what is guessed."""

        def guessed(number: int | None) -> None:
            self.guessed = number or 0

        self._ask_for_guess(str(self.lesson), guessed)

    def _ask_for_guess(self, name: str, then: Callable[[int | None], None]) -> None:
        from llamagym_tui.screens.widgets.dialogs import GuessDialog
        from llamagym_tui.setup.lessons import lessons

        lesson = lessons()[name]
        text = self._with_keys(lesson.to_do())
        self.push_screen(GuessDialog(lesson.title, lesson.guess, lesson.guesses, text), then)

    def action_lesson(self, answer: bool = False) -> None:
        """Show what to do in the lesson that is played, or its answer; either leads to the other."""
        from llamagym_tui.screens.widgets.dialogs import ConfirmDialog
        from llamagym_tui.setup.lessons import lessons

        lesson = lessons()[str(self.lesson)]
        text = self._with_keys(lesson.text(self.used_in_lesson))
        if answer:
            text = lesson.told(self.guessed)
        yes = "back to the lesson" if answer else "show the answer"
        then = partial(self.action_lesson, not answer)
        ConfirmDialog(lesson.title, Content(text), yes=yes, no="go on").ask(self, then)

    @property
    def lesson_line(self) -> str:
        """What to do next in the lesson that is played; empty: none is."""
        if self.lesson is None:
            return ""
        from llamagym_tui.screens.widgets.key_bar import key_of
        from llamagym_tui.setup.lessons import lessons

        lesson = lessons()[self.lesson]
        then = lesson.next_step(self.used_in_lesson) or "all steps are done."
        return self._with_keys(
            f"Lesson, {then} {key_of(self, 'lesson', 'L')} has its question and the answer."
        )

    def _with_keys(self, text: str) -> str:
        """A text of a lesson with the keys that bindings have now."""
        from llamagym_tui.screens.playground.playground import with_keys
        from llamagym_tui.screens.widgets.key_bar import key_of

        return with_keys(text, partial(key_of, self))

    def will_run(self, action: str | ActionParseResult) -> None:
        """Tick off what a lesson asks for."""
        if self.lesson is not None:
            active = self.screen.active_bindings.values()
            used = {each.binding.id for each in active if each.binding.action == action}
            self.used_in_lesson |= {id for id in used if id is not None}

    def on_run_list_requested(self, message: RunList.Requested) -> None:
        from llamagym_tui.screens.past_runs.branch import BranchDialog
        from llamagym_tui.setup.run_config import run_config

        def typed(branch: Branch | None) -> None:
            if branch is not None:
                self._go_on(branch.config)

        run_dir = message.row.info.run_dir
        with self.errors_shown():
            match message.what:
                case "replay":
                    self.push_screen(self.make_replay(run_dir))
                case "resume":
                    self._go_on(partial(run_config, agent=None, run_dir=run_dir, resume=True))
                case "branch":
                    self.push_screen(BranchDialog(run_dir), typed)

    def _go_on(self, settings: Callable[[], RunConfig]) -> None:
        """Go on from a checkpoint of a run, past the episodes and minutes that it was to end after.

        `settings` reads those of the run that goes on, as often as it takes until its agent is trusted.
        """
        from llamagym_tui.setup.run_config import with_run_dir

        with self.errors_shown():
            try:
                config = settings()
            except UntrustedAgent as untrusted:
                self._ask_for_trust(untrusted, partial(self._go_on, settings))
            else:
                self.open_run(
                    with_run_dir(msgspec.structs.replace(config, episodes=None, minutes=None))
                )

    def _ask_for_trust(self, untrusted: UntrustedAgent, then: Callable[[], None]) -> None:
        from llamagym_tui.screens.widgets.dialogs import CautiousDialog
        from llamagym_tui.setup.trust import trust

        def trusted() -> None:
            with self.errors_shown():
                trust(untrusted)
                then()

        question = CautiousDialog(
            "execute this code?",
            f"The agent of this run is {untrusted.code}, which you have not opened here before. It can do whatever "
            "you can, and so can what it imports. Resume only if you know who wrote it.",
            f"SHA-256 {untrusted.digest}",
            yes="execute it",
            no="leave it",
        )
        question.ask(self, trusted)

    @work(exclusive=True, group="past")
    async def recall(self, config: RunConfig) -> None:
        """Read what a run was before it is resumed; begun before its trainer is started."""
        from llamagym_tui.state.past_run import PastRun

        past = PastRun(config)
        while not past.complete:
            past.read_on()
            await asyncio.sleep(0)
        if self.run_state is not None:
            self._take_in(past.recalled_in(self.run_state))
        if past.fault:
            self.notify(past.fault, severity="warning", timeout=30)

    def on_home_screen_agent_chosen(self, message: HomeScreen.AgentChosen) -> None:
        from llamagym_tui.setup.run_config import run_config, with_run_dir

        with self.errors_shown():
            self.open_run(
                with_run_dir(
                    run_config(agent=message.spec, run_dir=None, resume=False, model=message.model)
                )
            )

    def on_replay_screen_shown(self, message: ReplayScreen.Shown) -> None:
        if self.run_state is not None and self.run_state.recorded:
            self._take_in(message.state)

    async def action_leave_replay(self) -> None:
        from llamagym_tui.screens.past_runs.replay import ReplayScreen

        stack: list[Screen[Any]] = list(self.screen_stack)
        if isinstance(stack[0], ReplayScreen):
            await self.run_action("quit")
        elif isinstance(stack[-1], ReplayScreen):
            self.run_state = None
            self.pop_screen()

    def show_tour(self) -> None:
        from llamagym_tui.screens.help.tour import TourScreen, marker

        if not marker().exists():
            self.is_newcomer = True
            self.push_screen(TourScreen())
