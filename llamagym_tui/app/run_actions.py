"""The app's actions on past runs and lessons, and the greeting at the first start. A part of `LlamaGymApp`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from textual import work
from textual.content import Content
from textual.screen import Screen
from textual.worker import Worker

from llamagym_tui import model_registry
from llamagym_tui.app.personal import PersonalApp
from llamagym_tui.config import RunConfig
from llamagym_tui.errors import UntrustedAgent
from llamagym_tui.screens.widgets.dialogs import CautiousDialog, ConfirmDialog
from llamagym_tui.setup.run_agent import RunAgent
from llamagym_tui.state.run import RunState
from llamagym_tui.user_files import cache_dir, data_dir, replace_file

if TYPE_CHECKING:
    from llamagym_tui.screens.past_runs.branch import Branch
    from llamagym_tui.screens.past_runs.home import HomeScreen
    from llamagym_tui.screens.past_runs.replay import ReplayScreen
    from llamagym_tui.screens.past_runs.run_table import RunTable


GREETING = (
    "A model plays, and PPO trains it. {pace.faster} plays faster, {pause} pauses, {prompt} edits its prompt, "
    "{policy_map} shows its policy, {table} opens a table for you, {help} lists all keys."
)
GREETING_S = 30.0
SHIPPED = RunConfig(agent="", run_dir="").model
"""The default model, which ships with the package."""


class PastRunActions(PersonalApp):
    REFUSED_IN_BROWSER: ClassVar = {"watch": {"runs"}}
    """A watcher sees one run."""
    config: RunConfig | None
    run_state: RunState | None
    _agent: RunAgent
    _take_in: Callable[[RunState], None]
    open_run: Callable[[RunConfig], None]
    is_newcomer = False
    """True at the first start ever, whose first run begins at reading pace."""
    lesson: str | None = None
    """Name of the current lesson."""
    _recalling: Worker[None] | None = None

    def make_replay(self, run_dir: str | Path) -> ReplayScreen:
        """The replay screen of a recorded run. Raises RunStoreError if the folder holds no run."""
        from llamagym_tui.screens.past_runs.replay import ReplayScreen
        from llamagym_tui.state.history import Recording

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
        from llamagym_tui.screens.past_runs.home import HomeScreen

        self.push_screen(HomeScreen({}, run_is_open=True))

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
        ConfirmDialog(lesson.title, Content(text), yes=yes, no="go on").ask(self, then)

    def _with_keys(self, text: str) -> str:
        """A text of a lesson with the keys that bindings have now."""
        from llamagym_tui.screens.playground.playground import with_keys
        from llamagym_tui.screens.widgets.key_bar import key_of

        return with_keys(text, partial(key_of, self))

    def on_run_table_requested(self, message: RunTable.Requested) -> None:
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
                    self._go_on(
                        partial(run_config, None, {"run_dir": str(run_dir), "resume": True})
                    )
                case "branch":
                    self.push_screen(BranchDialog(run_dir), typed)

    def _go_on(self, settings: Callable[[], RunConfig]) -> None:
        """Resume or branch a run without its former limits of episodes and minutes.

        `settings` is called again after the user has agreed to trust the agent.
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

    def on_home_screen_agent_chosen(self, message: HomeScreen.AgentChosen) -> None:
        from llamagym_tui.setup.run_config import run_config, with_run_dir

        with self.errors_shown():
            self.open_run(with_run_dir(run_config(message.spec, {"model": message.model})))

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

    def greet_newcomer(self) -> None:
        """Name the keys to begin with, at the first start ever."""
        marker = data_dir() / "greeted"
        if marker.exists():
            return
        self.is_newcomer = True
        self.notify(self._with_keys(GREETING), timeout=GREETING_S)
        # If nothing can be written, the greeting comes again next time.
        with contextlib.suppress(OSError):
            replace_file(marker, b"")

    # Models

    def require_model(
        self, config: RunConfig, then: Callable[[], object], otherwise: Callable[[], object]
    ) -> None:
        """Call `then` if the model of a run is here or the person lets it be downloaded, else `otherwise`."""
        if config.model == SHIPPED:
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

        kept = f" Converted, it is kept in {cache_dir()}." if download.package else ""
        question = ConfirmDialog(
            "download the model?",
            f"{download.name} is not on this machine. It is downloaded once: {download.source}.{kept}",
            "The model that ships with the app needs no download: --model bundled.",
            yes="download it",
            no="leave it",
        )
        self.push_screen(question, answered)
