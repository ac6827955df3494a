"""The Textual app: it reduces the trainer's events to the run state, shows it on screens, and sends requests."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
from collections.abc import Callable
from contextlib import aclosing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec.structs import replace
from textual import work
from textual.binding import Binding
from textual.driver import Driver
from textual.screen import ModalScreen, Screen
from textual.timer import Timer
from textual.worker import Worker, WorkerError

from llamagym_tui.app.actions import Actions
from llamagym_tui.app.leaving import run_to_end
from llamagym_tui.errors import LlamaGymError, UsageError
from llamagym_tui.protocol.commands import SetSystemPrompt
from llamagym_tui.protocol.events import RunStarted
from llamagym_tui.screens.playground.playground import PlaygroundScreen
from llamagym_tui.screens.widgets.frame import HEIGHTS, WIDTHS, CommandAsked
from llamagym_tui.screens.widgets.look import self_contained
from llamagym_tui.settings import RunConfig
from llamagym_tui.setup.run_agent import RunAgent
from llamagym_tui.state.reduce import reduce, trainer_lost
from llamagym_tui.state.run import RunState, initial_state, requested, restarted

if TYPE_CHECKING:
    from llamagym_tui.app.trainer_client import TrainerClient
    from llamagym_tui.screens.demos.judging import Reading
    from llamagym_tui.screens.play.classroom import Classroom

PAINT_S = 1 / 5
"""Least number of seconds between two paintings of new events."""
COLLECTIONS = (10_000, 10, 1_000)
"""Thresholds of garbage collection. The first is past the garbage of one painting; the last makes full collections,
pauses of 300 ms, rare.
"""
YIELD_EVENTS = 64
"""Events after which the screen has its turn."""


class LlamaGymApp(Actions):
    """The app, which begins with the playground of a run, a replay, or home."""

    TITLE = "llamagym-tui"
    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS
    # Keys with priority work in dialogs, too.
    BINDINGS: ClassVar = [
        Binding(
            "ctrl+q", "quit", "Quit", tooltip="Leave.", id="app.quit", show=False, priority=True
        ),
        Binding(
            "ctrl+z",
            "suspend_process",
            "Suspend",
            tooltip="To the shell; fg comes back, and a trainer goes on meanwhile.",
            id="app.suspend",
            show=False,
        ),
        Binding(
            "Y",
            "save_screen",
            "Save the screen",
            tooltip="Save what you see as an SVG file; a line says where.",
            id="app.screen",
            show=False,
        ),
        Binding(
            "f1",
            "help",
            "Help",
            tooltip="What the focused part is for, and all keys.",
            id="app.help",
            show=False,
            priority=True,
        ),
    ]
    REFUSED_IN_BROWSER: ClassVar = {
        "play": {"save_screen"},
        "seat": {"save_screen"},
        "watch": {"save_screen"},
    }
    """The server's disk is not the visitor's."""

    def __init__(
        self,
        config: RunConfig | None = None,
        *,
        client_factory: Callable[[], TrainerClient] | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        next_seed: Callable[[], int] = lambda: random.SystemRandom().randrange(2**31),
        replay: Path | None = None,
        follows: bool = False,
    ) -> None:
        """An app that has started nothing yet.

        Args:
            config: of the run; without one the app begins at home.
            client_factory: makes the trainer client; by default that of a process.
            clock: time of day in UTC, for demonstrations and run folders.
            next_seed: seeds of a person's episodes; random by default.
            replay: folder of a recorded run to play, in place of `config`.
            follows: as of `Recording`.
        """
        super().__init__(config, clock=clock, next_seed=next_seed)
        self._client_factory = client_factory
        self._paint_timer: Timer | None = None
        self._replay = replay
        self._follows = follows
        self._has_home = config is None and replay is None
        self._following: Worker[None] | None = None
        """Reads the trainer's events."""

    def get_driver_class(self) -> type[Driver]:
        """Our version of Textual's driver where there is one."""
        driver = super().get_driver_class()
        if driver.__name__ not in ("LinuxDriver", "WebDriver"):
            return driver
        from llamagym_tui.app.terminal import BrowserDriver, TerminalDriver

        return BrowserDriver if driver.__name__ == "WebDriver" else TerminalDriver

    def get_default_screen(self) -> Screen[Any]:
        screen = self.first_screen()
        self._load_screen_css(screen)  # Textual forgets that of the first screen.
        return screen

    def first_screen(self) -> Screen[Any]:
        if self.config is not None:
            return PlaygroundScreen(initial_state(self.config))
        if self._replay is not None:
            return self.make_replay(self._replay, follows=self._follows)
        from llamagym_tui.screens.past_runs.home import HomeScreen
        from llamagym_tui.setup.catalog import built_in

        return HomeScreen(built_in())

    def on_mount(self) -> None:
        # Only then may the trainer have the processor.
        self.call_after_refresh(self._first_frame_painted)

    def _first_frame_painted(self) -> None:
        gc.enable()
        if self.config is not None:
            self.require_model(self.config, partial(self._begin, self.config), self.exit)
        if self.lesson is not None:
            self.action_lesson()

    def open_run(self, config: RunConfig) -> None:
        self.require_model(config, partial(self._open_run, config), lambda: None)

    def _open_run(self, config: RunConfig) -> None:
        self._agent = RunAgent(config.agent, config=config)
        self.config = config
        self.run_state = initial_state(config)
        self.push_screen(PlaygroundScreen(self.run_state))
        self.call_after_refresh(self._begin, config)

    # The trainer

    def _begin(self, config: RunConfig) -> None:
        if config.resume:
            self._recalling = self.recall(config)
        self._following = self._follow_trainer()

    @work(exclusive=True, group="trainer")
    async def _follow_trainer(self) -> None:
        from llamagym_tui.app.trainer_client import TrainerClient

        assert self.config is not None
        self._client = (self._client_factory or TrainerClient)()
        try:
            await self._client.start(self.config)
            count = 0
            async with aclosing(self._client.events()) as events:
                async for event in events:
                    if isinstance(event, RunStarted) and self._recalling is not None:
                        await self._recalling.wait()
                    self._take_in(reduce(self._state, event))
                    self._collect(event)
                    count += 1
                    if count % YIELD_EVENTS == 0:
                        await asyncio.sleep(0)
        except LlamaGymError as error:
            self._take_in(trainer_lost(self._state, str(error)))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "restart":
            state = self.run_state
            return state is not None and bool(state.failure) and not state.recorded
        return super().check_action(action, parameters)

    def action_restart(self) -> None:
        """Start the trainer again: from its checkpoint, or in a new folder if it never wrote one."""
        from llamagym_tui.runs.run_store import new_run_dir

        assert self.config is not None
        state = self._state
        resume = state.checkpoint is not None or self.config.resume
        # A resumed run has the settings that its first batch has decided.
        config = state.config if resume else self.config
        run_dir = self.config.run_dir
        if not resume:
            run_dir = str(new_run_dir(self._agent.name, clock=self._clock))
        self.config = replace(
            config,
            resume=resume,
            run_dir=run_dir,
            mode=state.mode,
            system_prompt=state.system_prompt,
        )
        self._take_in(restarted(state, new_run=not resume))
        self._following = self._follow_trainer()

    async def _forget_run(self) -> None:
        """Go back to the screen that began the run, once all events of its trainer are taken in."""
        if self._following is not None:
            with contextlib.suppress(WorkerError):
                await self._following.wait()
        self._following = None
        self._client = None
        self.config = None
        self.run_state = None
        self.lesson = None
        self._agent = RunAgent("")
        left: Screen[Any] | None = None
        while len(self.screen_stack) > 1 and not isinstance(left, PlaygroundScreen):
            left = self.screen
            self.pop_screen()

    def _take_in(self, state: RunState) -> None:
        self.run_state = state
        self._paint_soon()

    def _paint_soon(self) -> None:
        if self._paint_timer is None:
            self._paint_timer = self.set_timer(PAINT_S, self._paint)

    def _paint(self) -> None:
        if self._paint_timer is not None:
            self._paint_timer.stop()
            self._paint_timer = None
        for screen in reversed(self.screen_stack):
            if not screen.is_mounted:  # it has just been opened
                self._paint_soon()
            elif show := getattr(screen, "show", None):
                show(self._state)
            if not isinstance(screen, ModalScreen):
                return

    async def on_command_asked(self, message: CommandAsked) -> None:
        """Record a request as pending, show it at once, and send it."""
        client, before = self._client, self.run_state
        if client is None or before is None or not before.live:
            return
        command = message.command(before) if callable(message.command) else message.command
        state = requested(before, command)
        if state is before:
            return  # the same request is pending
        self.run_state = state
        self._paint()
        await client.send(command)

    # The person

    def action_edit_prompt(self) -> None:
        from llamagym_tui.screens.playground.prompt_editor import PromptEditor

        with self.errors_shown():
            pending = self._state.prompt_requested
            prompt = self._active_prompt() if pending is None else pending
            self.push_screen(PromptEditor(self._state, prompt), self._prompt_edited)

    def _prompt_edited(self, system_prompt: str | None) -> None:
        if system_prompt is not None:
            self.post_message(CommandAsked(SetSystemPrompt(system_prompt=system_prompt)))

    def export_screenshot(self, *, title: str | None = None, simplify: bool = False) -> str:
        """The screen as an SVG that names no outside host."""
        return self_contained(super().export_screenshot(title=title, simplify=simplify))

    def action_save_screen(self, film: bool = False) -> None:
        """Save the screen, or the film of the policy map, in the run's folder; at home, among the user's data."""
        from llamagym_tui.screens.policy_map.film import run_film
        from llamagym_tui.user_files import data_dir, replace_file

        folder = data_dir() / "pictures"
        if self.run_state is not None:
            folder = Path(self.run_state.run_dir).absolute()
        what = "screen"
        # librsvg would drop spaces at the beginning of a text.
        picture = self.export_screenshot().replace("<svg ", '<svg xml:space="preserve" ', 1)
        if film and self._state.film and self._state.map_layout:
            what = "film"
            picture = run_film(self._state)
        path = folder / f"{what}-{self._clock():%Y%m%d-%H%M%S-%f}.svg"
        try:
            replace_file(path, picture.encode())
            self.notify(f"The {what} is saved: {path}")
        except OSError as error:
            self.notify(f"The {what} is not saved in {folder} ({error}).", severity="error")

    def _active_prompt(self) -> str:
        state = self._state
        if state.system_prompt is not None:
            return state.system_prompt
        if state.prompts:  # a resumed run is loading
            return state.prompts[-1].text
        return self._agent.own_prompt()


class SeatApp(LlamaGymApp):
    """The app of a visitor in a class: a seat at the table, without a trainer."""

    def __init__(self, classroom: Classroom, seat: int) -> None:
        """The app of a seat, counted from 1."""
        super().__init__()
        self._classroom = classroom
        self._seat = seat
        config = classroom.record.config
        self._agent = RunAgent(config.agent, config=config, demos=classroom.seat_path(seat))

    def first_screen(self) -> Screen[Any]:
        from llamagym_tui.screens.play.table import SeatScreen

        game = self.recorder.table(lambda: self._classroom.record.config.system_prompt or "")
        return SeatScreen(game, self._agent.title, self._classroom, self._seat)


class TableApp(LlamaGymApp):
    """The app of a person who steps through an environment; there is neither a trainer nor a model."""

    def __init__(self, config: RunConfig) -> None:
        """An app with the episodes that a run of these settings plays.

        Raises:
            UsageError: there is no such agent, or its file has a fault.
        """
        super().__init__()
        self._agent = RunAgent(config.agent, config=config)
        self._table_state = initial_state(config)
        self.title = self._agent.title

    def first_screen(self) -> Screen[Any]:
        from llamagym_tui.screens.play.table import HumanTableScreen

        state = self._table_state
        game = self.recorder.table(self._agent.own_prompt)
        game.repeat_run(state.config.seed)
        screen = HumanTableScreen(game, self.title, state)
        return screen.add_class("-told")


class SortingApp(LlamaGymApp):
    """The app of a file that is sorted by a person's judgements; there is no trainer."""

    def __init__(self, reading: Reading, config: RunConfig, begin: Callable[[], object]) -> None:
        """An app that shows what is read.

        Args:
            reading: what has been read so far.
            config: names the model, which is downloaded only if the person agrees.
            begin: starts the reading.
        """
        super().__init__()
        self._reading = reading
        self._model_config = config
        self._begin_reading = begin
        self.outcome: list[str] = []
        """Sentences on what was written at the end."""

    def first_screen(self) -> Screen[Any]:
        return Screen()

    def on_mount(self) -> None:
        from llamagym_tui.screens.demos.judging import JudgingScreen

        self.push_screen(JudgingScreen(self._reading), self._left)
        self.require_model(self._model_config, self._begin_reading, self.exit)

    def _left(self, outcome: list[str] | None) -> None:
        self.outcome = outcome or []
        self.exit()


class ScreenApp(LlamaGymApp):
    """The app of a screen that needs no trainer."""

    def __init__(self, make_screen: Callable[[], Screen[Any]]) -> None:
        super().__init__()
        self.first_screen = make_screen  # type: ignore[method-assign]


def open_playground(config: RunConfig, lesson: str | None = None) -> int:
    """Open the playground of a run, with the text of a lesson. Returns the exit code, 0 unless the run failed."""
    app = LlamaGymApp(config)
    app.lesson = lesson
    return run_app(app)


def open_home() -> int:
    return run_app(LlamaGymApp())


def open_replay(run_dir: Path, *, follows: bool) -> int:
    """Replay a recorded run; the arguments are those of `Recording`. Returns the exit code.

    Raises RunStoreError: the folder holds no run.
    """
    from llamagym_tui.runs.run_store import read_config

    read_config(run_dir)
    return run_app(LlamaGymApp(replay=run_dir, follows=follows))


def open_seat(folder: Path, seat: int) -> int:
    """Play at a seat of a class. Returns the exit code.

    Raises:
        UsageError: the folder holds no class, or it has no such seat.
        LlamaGymError: the seat's file cannot be read, or the agent's code is not trusted.
    """
    from llamagym_tui.screens.play.classroom import Classroom
    from llamagym_tui.setup.trust import require_trusted

    classroom = Classroom.read(folder)
    if not 1 <= seat <= classroom.record.seats:
        raise UsageError(f"The class has seats 1 to {classroom.record.seats}, and no seat {seat}.")
    require_trusted(classroom.record.config.agent)
    classroom.match_of(seat)
    return run_app(SeatApp(classroom, seat))


def run_app(app: LlamaGymApp) -> int:
    gc.freeze()
    gc.set_threshold(*COLLECTIONS)
    return run_to_end(app)
