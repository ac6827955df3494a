"""The app's actions on demonstrations, a part of `LlamaGymApp`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import work

from llamagym_tui.app.personal import PersonalApp
from llamagym_tui.protocol.events import AnyEvent, EpisodeCorrected, WarmStartEvaluated
from llamagym_tui.screens.widgets.key_bar import key_of
from llamagym_tui.setup.run_agent import RunAgent
from llamagym_tui.state.run import RunState
from llamagym_tui.state.texts import comparison_text

if TYPE_CHECKING:
    from llamagym_tui.screens.demos.recording import DemoRecorder

PARSE_RISE = 0.05
"""Rise of the parse failure rate by a warm start that gets a warning."""
COMPARED_S = 30.0


class DemoActions(PersonalApp):
    REFUSED_IN_BROWSER: ClassVar = {"watch": {"human_table", "demonstrations"}}
    """These write files."""
    run_state: RunState | None
    _agent: RunAgent
    _clock: Callable[[], datetime]
    _next_seed: Callable[[], int]
    _active_prompt: Callable[[], str]

    def __init__(self, *, css_path: Path) -> None:
        super().__init__(css_path=css_path)
        self._recorders: dict[str, DemoRecorder] = {}

    @property
    def _state(self) -> RunState:
        assert self.run_state is not None, "there is no run at home"
        return self.run_state

    @property
    def recorder(self) -> DemoRecorder:
        name = self._agent.name
        if name not in self._recorders:
            from llamagym_tui.screens.demos.recording import (
                DemoRecorder,
            )  # not before the first frame

            self._recorders[name] = DemoRecorder(
                self._agent, clock=self._clock, next_seed=self._next_seed
            )
        return self._recorders[name]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        match action:
            case "warm_start":
                return (
                    True
                    if self.run_state is not None and self.run_state.live and self.run_state.run
                    else None
                )
        return super().check_action(action, parameters)

    # Playing

    def action_human_table(self) -> None:
        from llamagym_tui.screens.play.table import HumanTableScreen

        with self.errors_shown():
            game = self.recorder.table(self._active_prompt, against_model=self._state.live)
            self.push_screen(
                HumanTableScreen(game, self._agent.title, self.recorder.policy_hint, self._state)
            )

    # Recording

    def _collect(self, event: AnyEvent) -> None:
        if isinstance(event, WarmStartEvaluated):
            self._compare(event)
        if isinstance(event, EpisodeCorrected):
            self.recorder.add(event, self._state.model)
            self._save()

    @work(group="save")
    async def _save(self) -> None:
        writer = self.recorder.writer
        await asyncio.to_thread(writer.save)
        if writer.fault:
            self.notify(writer.fault, severity="error")

    # Looking

    def action_demonstrations(self) -> None:
        from llamagym_tui.screens.demos.demonstrations import DemonstrationsScreen

        with self.errors_shown():
            agent = self._agent
            self.push_screen(DemonstrationsScreen(agent.demos_path(), agent.agent, agent.title))

    # Training

    def action_warm_start(self) -> None:
        from llamagym_tui.screens.demos.warm_start import WarmStartDialog

        prompt = self._state.system_prompt or ""
        self.push_screen(WarmStartDialog(self._state, lambda: self.recorder.offers(prompt)))

    def _compare(self, event: WarmStartEvaluated) -> None:
        """Notify of the effect of a warm start."""
        worse = event.after.parse_failure_rate - event.before.parse_failure_rate
        self.notify(
            f"{comparison_text(event, self._state.return_unit)}. {key_of(self, 'roll_back', 'ctrl+r')} takes it back.",
            severity="warning" if worse > PARSE_RISE else "information",
            timeout=COMPARED_S,
        )

    # Leaving

    def _unsaved_reasons(self) -> list[str]:
        return [
            f"{recorder.waiting} of your episodes are not on disk and would be lost. {recorder.writer.fault}"
            for recorder in self._recorders.values()
            if recorder.waiting
        ]

    def _close_recorders(self) -> None:
        for recorder in self._recorders.values():
            recorder.close()
