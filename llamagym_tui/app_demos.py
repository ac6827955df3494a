"""The app's actions around demonstrations: a person's table, keeping what the model played, looking, warm starting.

A part of `LlamaGymApp`, which lends its agent, its run and its way to the trainer; every desk it opened stays until
the app is left, so that nothing that waits to be saved goes with a screen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any

from textual import work
from textual.app import App

from llamagym_tui.demo_desk import DemoDesk
from llamagym_tui.errors import LlamaGymError
from llamagym_tui.protocol.events import AnyEvent
from llamagym_tui.run_agent import RunAgent
from llamagym_tui.run_state import RunState
from llamagym_tui.screens.widgets.literal import literal


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
            self._desks[name] = DemoDesk(self._agent, clock=self._clock, next_seed=self._next_seed)
        return self._desks[name]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """An episode can be kept once one has ended; a run is needed for a warm start."""
        match action:
            case "keep_episode":
                return True if self.run_state is not None and self.desk.keepable is not None else None
        return super().check_action(action, parameters)

    # Playing

    def action_human_table(self) -> None:
        """Open the person's table, which stays as it was left."""
        from llamagym_tui.screens.human_table import HumanTableScreen

        try:
            game = self.desk.table(self._active_prompt)
            self.push_screen(HumanTableScreen(game, self._agent.title))
        except LlamaGymError as error:
            self._tell_error(error)

    # Keeping

    def _hear(self, event: AnyEvent) -> None:
        """Take in what the trainer tells of the watched environment."""
        desk = self.desk
        before = desk.keepable
        if desk.hear(event, self._model):
            self._save()
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

    @work(group="save")
    async def _save(self, told: str = "") -> None:
        writer = self.desk.writer
        await asyncio.to_thread(writer.save)
        if writer.saved.fault:
            self.notify(literal(writer.saved.fault), severity="error", markup=False)
        elif told:
            self.notify(literal(f"{told} in {writer.path}."), markup=False)

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
