"""What the app does with past runs: list them, compare two, replay one, go on with one; and the tour of a first run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from textual import work
from textual.app import App
from textual.screen import Screen
from textual.worker import Worker

from llamagym_tui.config import RunConfig
from llamagym_tui.errors import LlamaGymError
from llamagym_tui.screens.widgets.literal import literal
from llamagym_tui.setup.run_agent import RunAgent
from llamagym_tui.state.run import RunState

if TYPE_CHECKING:
    from llamagym_tui.screens.past_runs.home import HomeScreen
    from llamagym_tui.screens.past_runs.replay import ReplayScreen
    from llamagym_tui.screens.past_runs.run_list import RunList
    from llamagym_tui.screens.past_runs.runs import RunsScreen
    from llamagym_tui.state.past_run import PastRun

NEED_A_RUN = ("edit_prompt", "restart")
"""Actions of the app that need a trainer."""


class PastRunActions(App[None]):
    """An app that can show past runs; `LlamaGymApp` is one."""

    config: RunConfig | None
    run_state: RunState | None
    _agent: RunAgent
    _recalling: Worker[None] | None = None
    """Reads what the run was before it was resumed."""

    def _take_in(self, state: RunState) -> None:
        """Keep a state and paint it."""
        raise NotImplementedError

    def open_run(self, config: RunConfig) -> None:
        """Open the playground of a run and start its trainer."""
        raise NotImplementedError

    def make_replay(self, run_dir: str | Path) -> ReplayScreen:
        """The screen of a recorded run, which is the app's run until it is left.

        Raises:
            RunStoreError: the folder holds no run.
        """
        from llamagym_tui.screens.past_runs.replay import ReplayScreen
        from llamagym_tui.state.replay import Recording

        recording = Recording(run_dir)
        self._agent = RunAgent(recording.config.agent)
        screen = ReplayScreen(recording, lambda: str(self._agent.demos_path()))
        self.run_state = screen.player.state
        return screen

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A recorded run takes no commands."""
        if action in NEED_A_RUN and self.run_state is not None and self.run_state.recorded:
            return None
        return super().check_action(action, parameters)

    def action_runs(self) -> None:
        """List past runs; while one is open, only to be looked at."""
        from llamagym_tui.screens.past_runs.runs import RunsScreen

        state = self.run_state
        beside = None if state is None else state.run_dir if state.live and not state.recorded else ""
        self.push_screen(RunsScreen(beside=beside))

    def on_run_list_replay_asked(self, message: RunList.ReplayAsked) -> None:
        """Replay the run."""
        try:
            self.push_screen(self.make_replay(message.row.info.run_dir))
        except LlamaGymError as error:
            self._refuse(error)

    def on_run_list_resume_asked(self, message: RunList.ResumeAsked) -> None:
        """Go on with the run from its checkpoint, past the episodes and minutes that it was to end after."""
        from llamagym_tui.setup.run_config import run_config

        try:
            config = run_config(agent=None, run_dir=message.row.info.run_dir, resume=True)
        except LlamaGymError as error:
            self._refuse(error)
            return
        self.open_run(msgspec.structs.replace(config, episodes=None, minutes=None))

    def recall(self, config: RunConfig) -> None:
        """Read what a run that goes on has been, before its trainer adds to it."""
        from llamagym_tui.state.past_run import PastRun

        self._recalling = self._read_past(PastRun(config))

    @work(exclusive=True, group="past")
    async def _read_past(self, past: PastRun) -> None:
        while not past.complete:
            past.read_on()
            await asyncio.sleep(0)
        if self.run_state is not None:
            self._take_in(past.recalled_in(self.run_state))
        if past.fault:
            self.notify(literal(past.fault), severity="warning", markup=False, timeout=30)

    async def _recalled(self) -> None:
        """Return when the past of the run is known, or there is none."""
        if self._recalling is not None:
            await self._recalling.wait()
            self._recalling = None

    def on_home_screen_agent_chosen(self, message: HomeScreen.AgentChosen) -> None:
        """Open the playground of a new run."""
        from llamagym_tui.setup.run_config import run_config, with_run_dir

        try:
            self.open_run(with_run_dir(run_config(agent=message.spec, run_dir=None, resume=False, model=message.model)))
        except LlamaGymError as error:
            self._refuse(error)

    def on_runs_screen_compare_asked(self, message: RunsScreen.CompareAsked) -> None:
        """Show two runs beside each other."""
        from llamagym_tui.screens.past_runs.compare import CompareScreen

        self.push_screen(CompareScreen(message.first, message.second))

    def on_replay_screen_shown(self, message: ReplayScreen.Shown) -> None:
        """Paint another moment of the recorded run."""
        if self.run_state is not None and self.run_state.recorded:
            self._take_in(message.state)

    async def on_replay_screen_left(self, message: ReplayScreen.Left) -> None:
        """Back to where the replay was opened, or out."""
        from llamagym_tui.screens.past_runs.replay import ReplayScreen

        stack: list[Screen[Any]] = list(self.screen_stack)
        if isinstance(stack[0], ReplayScreen):
            await self.run_action("quit")
        elif isinstance(stack[-1], ReplayScreen):
            self.run_state = None
            self.pop_screen()

    def show_tour(self) -> None:
        """Show the five hints, if they were not seen yet."""
        from llamagym_tui.screens.help.tour import TourScreen, was_seen

        if not was_seen():
            self.push_screen(TourScreen())

    def _refuse(self, error: LlamaGymError) -> None:
        self.notify(literal(str(error)), severity="error", markup=False)
