"""The app's actions around demonstrations: a person's table, keeping what the model played, looking, warm starting.

A part of `LlamaGymApp`, which has the agent, the run and the client of the trainer. Recorders stay until the app is
left, so that episodes that wait to be saved outlive their screen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from textual import work
from textual.app import App

from llamagym_tui.errors import LlamaGymError
from llamagym_tui.protocol.commands import WarmStart
from llamagym_tui.protocol.events import AnyEvent
from llamagym_tui.screens.widgets.key_bar import key_of
from llamagym_tui.screens.widgets.literal import literal
from llamagym_tui.setup.run_agent import RunAgent
from llamagym_tui.state.run import RunState, warm_start_asked, warm_start_cancelled

if TYPE_CHECKING:
    from llamagym_tui.app.trainer_client import Client
    from llamagym_tui.screens.demos.recording import DemoRecorder
    from llamagym_tui.screens.demos.warm_start import WarmStartDialog
    from llamagym_tui.screens.past_runs.home import HomeScreen
    from llamagym_tui.screens.play.table import HumanTableScreen


class DemoActions(App[None]):
    """What an app does with demonstrations."""

    run_state: RunState | None
    _agent: RunAgent
    _clock: Callable[[], datetime]
    _next_seed: Callable[[], int]
    _client: Client | None

    def __init__(self, **settings: Any) -> None:
        """`settings` are Textual's."""
        super().__init__(**settings)
        self._recorders: dict[str, DemoRecorder] = {}

    def _active_prompt(self) -> str:
        raise NotImplementedError

    def _take_in(self, state: RunState) -> None:
        raise NotImplementedError

    @property
    def recorder(self) -> DemoRecorder:
        """The recorder of the agent that is played now."""
        name = self._agent.name
        if name not in self._recorders:
            from llamagym_tui.screens.demos.recording import DemoRecorder  # not before the first frame

            self._recorders[name] = DemoRecorder(self._agent, clock=self._clock, next_seed=self._next_seed)
        return self._recorders[name]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """An episode can be kept once one has ended; a run is needed for a warm start."""
        match action:
            case "keep_episode":
                recorder = self._recorders.get(self._agent.name) if self.run_state is not None else None
                return True if recorder is not None and recorder.keepable is not None else None
            case "keep_rule":
                return self.run_state is not None and not self.run_state.recorded
            case "warm_start":
                return True if self.run_state is not None and self.run_state.live and self.run_state.run else None
        return super().check_action(action, parameters)

    # Playing

    def action_human_table(self) -> None:
        """Open the person's table, which stays as it was left."""
        from llamagym_tui.screens.play.table import HumanTableScreen

        assert self.run_state is not None
        try:
            game = self.recorder.table(self._active_prompt)
            self.push_screen(HumanTableScreen(game, self._agent.title, self.recorder.policy_hint, self.run_state))
        except LlamaGymError as error:
            self._tell_error(error)

    async def on_human_table_screen_policy_asked(self, message: HumanTableScreen.PolicyAsked) -> None:
        """Ask the trainer what the policy would do where the person plays."""
        if self._client is not None and self.run_state is not None and self.run_state.live:
            await self._client.send(message.question)

    # Keeping

    def _hear(self, event: AnyEvent) -> None:
        """Take in what the trainer tells of the watched environment."""
        recorder = self.recorder
        before = recorder.keepable
        try:
            if recorder.add(event, self._model):
                self._save()
        except LlamaGymError as error:
            self._tell_error(error)
        if (recorder.keepable is None) != (before is None):
            self.screen.refresh_bindings()

    def action_keep_episode(self) -> None:
        """Keep the watched episode that ended last as a demonstration."""
        try:
            kept = self.recorder.keep(self._model)
        except LlamaGymError as error:
            self._tell_error(error)
            return
        self.screen.refresh_bindings()
        self._save(f"Episode {kept.started.episode:,} (return {kept.episode_return:g}) is kept")

    def action_keep_rule(self) -> None:
        """Ask from which return on every watched episode is kept."""
        from llamagym_tui.screens.demos.keep_rule import KeepRuleDialog

        self.push_screen(KeepRuleDialog(self.recorder.keep_at_least), self._keep_from)

    def _keep_from(self, answer: tuple[float | None] | None) -> None:
        if answer is None:
            return
        [self.recorder.keep_at_least] = answer
        rule = self.recorder.keep_at_least
        self.notify(
            f"Episodes are kept by hand, with {key_of(self.screen, 'keep', 'k')}."
            if rule is None
            else f"From now on every watched episode with a return of at least {rule:g} is kept.",
            markup=False,
        )

    @work(group="save")
    async def _save(self, told: str = "") -> None:
        writer = self.recorder.writer
        await asyncio.to_thread(writer.save)
        if writer.saved.fault:
            self.notify(literal(writer.saved.fault), severity="error", markup=False)
        elif told:
            self.notify(literal(f"{told} in {writer.path}."), markup=False)

    # Looking

    def action_demonstrations(self) -> None:
        """Open the demonstrations of the agent that is played."""
        self._open_demonstrations(self._agent)

    def on_home_screen_demonstrations_asked(self, message: HomeScreen.DemonstrationsAsked) -> None:
        """Open the demonstrations of an agent that is not played."""
        self._open_demonstrations(RunAgent(message.spec))

    def _open_demonstrations(self, agent: RunAgent) -> None:
        from llamagym_tui.screens.demos.demonstrations import DemonstrationsScreen

        try:
            self.push_screen(DemonstrationsScreen(agent.demos_path(), agent.agent, agent.title))
        except LlamaGymError as error:
            self._tell_error(error)

    # Training

    def action_warm_start(self) -> None:
        """Open the dialog that trains on demonstrations."""
        from llamagym_tui.screens.demos.warm_start import WarmStartDialog

        assert self.run_state is not None
        self.push_screen(WarmStartDialog(self.run_state, self.recorder.offers))

    async def on_warm_start_dialog_commands_asked(self, message: WarmStartDialog.CommandsAsked) -> None:
        """Ask the trainer for a warm start with its evaluations, in order, or for its end."""
        state, commands = self.run_state, message.commands
        if self._client is None or state is None or not state.live:
            return
        # The dialog is painted now and then: a second key may come before it knows of the first.
        begins = any(isinstance(command, WarmStart) for command in commands)
        if state.teaching.under_way if begins else state.teaching.cancelling:
            return
        if begins:
            self._take_in(warm_start_asked(state, evaluates=len(commands) > 1))
        else:
            self._take_in(warm_start_cancelled(state))
        for command in commands:
            await self._client.send(command)

    # Leaving

    def _unsaved_reasons(self) -> list[str]:
        """Why a person might not want to leave."""
        return [
            f"{recorder.waiting} of your episodes are not on disk and would be lost. {recorder.writer.saved.fault}"
            for recorder in self._recorders.values()
            if recorder.waiting
        ]

    def _close_recorders(self) -> None:
        for recorder in self._recorders.values():
            recorder.close()

    @property
    def _model(self) -> str:
        return self.run_state.model if self.run_state is not None else ""

    def _tell_error(self, error: LlamaGymError) -> None:
        self.notify(literal(str(error)), severity="error", markup=False)
