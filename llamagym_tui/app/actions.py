"""The app's actions on models, past runs, lessons and demonstrations. A part of `LlamaGymApp`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import msgspec
from textual import work
from textual.content import Content
from textual.worker import Worker

from llamagym_tui.app.leaving import Leaving
from llamagym_tui.protocol.events import AnyEvent, EpisodeCorrected, WarmStartEvaluated
from llamagym_tui.runs import model_registry
from llamagym_tui.screens.widgets.dialogs import ConfirmDialog
from llamagym_tui.screens.widgets.key_bar import key_of
from llamagym_tui.settings import RunConfig
from llamagym_tui.setup.run_agent import RunAgent
from llamagym_tui.state.run import RunState
from llamagym_tui.state.texts import comparison_text

if TYPE_CHECKING:
    from llamagym_tui.screens.past_runs.home import HomeScreen
    from llamagym_tui.screens.past_runs.replay import ReplayScreen
    from llamagym_tui.screens.past_runs.run_table import RunTable
    from llamagym_tui.screens.play.table import DemoRecorder


COMPARED_S = 30.0


class Actions(Leaving):
    REFUSED_IN_BROWSER: ClassVar = {"watch": {"runs", "human_table", "demonstrations"}}
    """A watcher sees one run and writes no files."""
    _active_prompt: Callable[[], str]
    open_run: Callable[[RunConfig], None]
    lesson: str | None = None
    """Name of the current lesson."""
    _recalling: Worker[None] | None = None

    def __init__(
        self,
        config: RunConfig | None,
        *,
        clock: Callable[[], datetime],
        next_seed: Callable[[], int],
    ) -> None:
        super().__init__(config)
        self._agent = RunAgent(config.agent if config else "", config=config)
        self._clock = clock
        self._next_seed = next_seed

    @property
    def _state(self) -> RunState:
        assert self.run_state is not None, "there is no run at home"
        return self.run_state

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        state = self.run_state
        match action:
            case "lesson":
                return self.lesson is not None
            case "warm_start":
                return True if state is not None and state.live and state.run else None
            case "edit_prompt" if state is not None and state.recorded:
                return None
        return super().check_action(action, parameters)

    # Models

    def require_model(
        self, config: RunConfig, then: Callable[[], object], otherwise: Callable[[], object]
    ) -> None:
        """Call `then` if the model of a run is here or the person lets it be downloaded, else `otherwise`."""
        if config.model == model_registry.BUNDLED:
            then()
        else:
            self._look_for_model(config, then, otherwise)

    @work(group="model")
    async def _look_for_model(
        self, config: RunConfig, then: Callable[[], object], otherwise: Callable[[], object]
    ) -> None:
        # The hub's library takes a while to be imported.
        download = await asyncio.to_thread(model_registry.download_of, config.model)
        if download is None:
            then()
            return

        def answered(yes: bool | None) -> None:
            if yes:
                then()
                return
            with contextlib.suppress(OSError):
                Path(config.run_dir).rmdir()  # it was reserved, and is empty
            otherwise()

        question = ConfirmDialog(
            "download the model?",
            f"{config.model} is not on this machine. It is downloaded once: {download}.",
            "The model that ships with the app needs no download: --model bundled.",
            yes="download it",
            no="leave it",
        )
        self.push_screen(question, answered)

    # Lessons

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
        """Show a lesson, and begin its run if the person agrees."""
        from llamagym_tui.setup.lessons import begun, lessons

        def play() -> None:
            with self.errors_shown():
                self.open_run(begun(name))
                self.lesson = name

        lesson = lessons()[name]
        text = Content(self._with_keys(lesson.text))
        ConfirmDialog(lesson.title, text, yes="play it", no="leave it").ask(self, play)

    def action_lesson(self, answer: bool = False) -> None:
        """Show the text of the current lesson or its answer; each leads to the other."""
        from llamagym_tui.setup.lessons import lessons

        lesson = lessons()[str(self.lesson)]
        text = lesson.answer if answer else self._with_keys(lesson.text)
        yes = "back to the lesson" if answer else "show the answer"
        then = partial(self.action_lesson, not answer)
        ConfirmDialog(lesson.title, Content(text), yes=yes, no="close").ask(self, then)

    def _with_keys(self, text: str) -> str:
        """A text of a lesson with the keys that bindings have now."""
        from llamagym_tui.screens.playground.playground import with_keys

        return with_keys(text, partial(key_of, self))

    # Past runs

    def action_runs(self) -> None:
        from llamagym_tui.screens.past_runs.home import HomeScreen

        self.push_screen(HomeScreen({}, run_is_open=True))

    def on_home_screen_agent_chosen(self, message: HomeScreen.AgentChosen) -> None:
        from llamagym_tui.setup.run_config import run_config, with_run_dir

        with self.errors_shown():
            self.open_run(with_run_dir(run_config(message.spec, {"model": message.model})))

    def on_run_table_requested(self, message: RunTable.Requested) -> None:
        from llamagym_tui.screens.past_runs.home import BranchDialog
        from llamagym_tui.setup.run_config import run_config

        run_dir = message.row.info.run_dir
        with self.errors_shown():
            match message.what:
                case "replay":
                    self.push_screen(self.make_replay(run_dir))
                case "resume":
                    self._go_on(run_config(None, {"run_dir": str(run_dir), "resume": True}))
                case "branch":
                    self.push_screen(BranchDialog(run_dir), self._go_on)

    def _go_on(self, config: RunConfig | None) -> None:
        """Resume or branch a run without its former limits of episodes and minutes."""
        from llamagym_tui.setup.run_config import with_run_dir

        if config is not None:
            unlimited = msgspec.structs.replace(config, episodes=None, minutes=None)
            with self.errors_shown():
                self.open_run(with_run_dir(unlimited))

    @work(exclusive=True, group="past")
    async def recall(self, config: RunConfig) -> None:
        """Read the past of a run that is resumed."""
        from llamagym_tui.state.history import History

        past = History(Path(config.run_dir), config)
        while not past.complete:
            past.read_on()
            await asyncio.sleep(0)
        if self.run_state is not None:
            self._take_in(past.recalled_in(self.run_state))
        if past.fault:
            self.notify(past.fault, severity="warning", timeout=30)

    def make_replay(self, run_dir: str | Path, *, follows: bool = False) -> ReplayScreen:
        """The replay screen of a recorded run; the arguments are those of `Recording`."""
        from llamagym_tui.screens.past_runs.replay import ReplayScreen
        from llamagym_tui.state.history import Recording

        recording = Recording(run_dir, follows=follows)
        self._agent = RunAgent(recording.config.agent, config=recording.config, may_run_code=False)
        screen = ReplayScreen(recording)
        self.run_state = screen.player.state
        return screen

    def on_replay_screen_shown(self, message: ReplayScreen.Shown) -> None:
        if self.run_state is not None and self.run_state.recorded:
            self._take_in(message.state)

    async def action_leave_replay(self) -> None:
        from llamagym_tui.screens.past_runs.replay import ReplayScreen

        if isinstance(self.screen_stack[0], ReplayScreen):
            await self.action_quit()
        elif isinstance(self.screen, ReplayScreen):
            self.run_state = None
            self.pop_screen()

    # Demonstrations

    @property
    def recorder(self) -> DemoRecorder:
        """The recorder of the agent's demonstrations."""
        from llamagym_tui.screens.play.table import DemoRecorder

        name = self._agent.name
        if name not in self._recorders:
            self._recorders[name] = DemoRecorder(
                self._agent, clock=self._clock, next_seed=self._next_seed
            )
        return self._recorders[name]

    def action_human_table(self) -> None:
        from llamagym_tui.screens.play.table import HumanTableScreen

        with self.errors_shown():
            game = self.recorder.table(self._active_prompt, against_model=self._state.live)
            self.push_screen(HumanTableScreen(game, self._agent.title, self._state))

    def action_demonstrations(self) -> None:
        from llamagym_tui.screens.demos.demonstrations import DemonstrationsScreen

        with self.errors_shown():
            agent = self._agent
            self.push_screen(DemonstrationsScreen(agent.demos_path(), agent.agent, agent.title))

    def action_warm_start(self) -> None:
        from llamagym_tui.screens.demos.warm_start import WarmStartDialog

        self.push_screen(WarmStartDialog(self._state, self._agent))

    def _collect(self, event: AnyEvent) -> None:
        """Record a corrected episode, and tell the effect of a warm start."""
        if isinstance(event, EpisodeCorrected):
            self.recorder.add(event, self._state.model)
            self._save()
        elif isinstance(event, WarmStartEvaluated):
            effect = comparison_text(event, self._state.return_unit)
            back = f"{key_of(self, 'roll_back', 'ctrl+r')} rolls it back."
            self.notify(f"{effect}. {back}", timeout=COMPARED_S)

    @work(group="save")
    async def _save(self) -> None:
        writer = self.recorder.writer
        await asyncio.to_thread(writer.save)
        if writer.fault:
            self.notify(writer.fault, severity="error")
