"""The app's actions around demonstrations: a person's table, keeping what the model played, looking, warm starting.

A part of `LlamaGymApp`, which lends its agent, its run and its way to the trainer; every desk it opened stays until
the app is left, so that nothing that waits to be saved goes with a screen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from textual import work
from textual.app import App

from llamagym_tui.errors import LlamaGymError
from llamagym_tui.protocol.events import AnyEvent
from llamagym_tui.screens.widgets.key_bar import key_of
from llamagym_tui.screens.widgets.literal import literal
from llamagym_tui.setup.run_agent import RunAgent
from llamagym_tui.state.run import RunState

if TYPE_CHECKING:
    from llamagym_tui.screens.demos.recording import DemoDesk
    from llamagym_tui.screens.past_runs.home import HomeScreen


class DemoActions(App[None]):
    """What an app does with demonstrations."""

    run_state: RunState | None
    _agent: RunAgent
    _clock: Callable[[], datetime]
    _next_seed: Callable[[], int]

    def __init__(self, **settings: Any) -> None:
        """An app whose desks are not opened yet; `settings` are Textual's."""
        super().__init__(**settings)
        self._desks: dict[str, DemoDesk] = {}

    def _active_prompt(self) -> str:
        raise NotImplementedError

    @property
    def desk(self) -> DemoDesk:
        """The desk of the agent that is played now."""
        name = self._agent.name
        if name not in self._desks:
            from llamagym_tui.screens.demos.recording import DemoDesk  # not before the first frame

            self._desks[name] = DemoDesk(self._agent, clock=self._clock, next_seed=self._next_seed)
        return self._desks[name]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """An episode can be kept once one has ended; a run is needed for a warm start."""
        match action:
            case "keep_episode":
                desk = self._desks.get(self._agent.name) if self.run_state is not None else None
                return True if desk is not None and desk.keepable is not None else None
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
            game = self.desk.table(self._active_prompt)
            self.push_screen(HumanTableScreen(game, self._agent.title, self.desk.policy_hint, self.run_state))
        except LlamaGymError as error:
            self._tell_error(error)

    # Keeping

    def _hear(self, event: AnyEvent) -> None:
        """Take in what the trainer tells of the watched environment."""
        desk = self.desk
        before = desk.keepable
        try:
            if desk.hear(event, self._model):
                self._save()
        except LlamaGymError as error:
            self._tell_error(error)
        if (desk.keepable is None) != (before is None):
            self.screen.refresh_bindings()

    def action_keep_episode(self) -> None:
        """Keep the watched episode that ended last as a demonstration."""
        try:
            kept = self.desk.keep(self._model)
        except LlamaGymError as error:
            self._tell_error(error)
            return
        self.screen.refresh_bindings()
        self._save(f"Episode {kept.episode:,} (return {kept.episode_return:g}) is kept")

    def action_keep_rule(self) -> None:
        """Ask from which return on every watched episode is kept."""
        from llamagym_tui.screens.demos.keep_rule import KeepRuleDialog

        self.push_screen(KeepRuleDialog(self.desk.keep_at_least), self._keep_from)

    def _keep_from(self, answer: tuple[float | None] | None) -> None:
        if answer is None:
            return
        [self.desk.keep_at_least] = answer
        rule = self.desk.keep_at_least
        self.notify(
            f"Episodes are kept by hand, with {key_of(self.screen, 'keep', 'k')}."
            if rule is None
            else f"From now on every watched episode with a return of at least {rule:g} is kept.",
            markup=False,
        )

    @work(group="save")
    async def _save(self, told: str = "") -> None:
        writer = self.desk.writer
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
        self.push_screen(WarmStartDialog(self.run_state, self.desk.offers))

    # Leaving

    def _reasons_of_desks(self) -> list[str]:
        """Why a person might not want to leave."""
        return [
            f"{desk.waiting} of your episodes are not on disk and would be lost. {desk.writer.saved.fault}"
            for desk in self._desks.values()
            if desk.waiting
        ]

    def _close_desks(self) -> None:
        for desk in self._desks.values():
            desk.close()

    @property
    def _model(self) -> str:
        return self.run_state.model if self.run_state is not None else ""

    def _tell_error(self, error: LlamaGymError) -> None:
        self.notify(literal(str(error)), severity="error", markup=False)
