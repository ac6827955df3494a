"""The Textual app: wires the trainer's events to the run state, the state to the screens, keys to commands.

Nothing heavy is imported before the first frame, and torch never. Events change the state as they come; the screen
is repainted at `PAINT_S` at most. Only this module talks to the trainer client.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import App
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen, Screen
from textual.theme import Theme

from llamagym_tui.agent import Agent
from llamagym_tui.config import RunConfig
from llamagym_tui.errors import LlamaGymError
from llamagym_tui.protocol.commands import AnyCommand, Pause, Resume, SetMode, SetSystemPrompt
from llamagym_tui.run_state import (
    RunState,
    initial_state,
    mode_asked,
    pause_asked,
    prompt_asked,
    reduce,
    trainer_lost,
)
from llamagym_tui.screens.playground import PlaygroundScreen
from llamagym_tui.screens.widgets.too_small import MIN_HEIGHT, MIN_WIDTH

if TYPE_CHECKING:
    from llamagym_tui.human import HumanGame
    from llamagym_tui.screens.home import HomeScreen
    from llamagym_tui.trainer_client import Client

PAINT_S = 1 / 12
"""Seconds between two paintings of new events, at least."""
STOP_S = 20.0
"""Seconds that a trainer has to write its checkpoint before it is ended by force."""
YIELD_EVENTS = 64
"""Events after which the reader lets the screen have its turn."""
WIDE = 120
"""Cells from which chart and figures stand beside the conversation."""

THEME = Theme(
    name="llamagym",
    primary="#7db4ff",
    secondary="#5c86bd",
    accent="#c9a7ff",
    success="#7fcf9a",
    warning="#e8bf6a",
    error="#f07a7a",
    foreground="#d6dbe3",
    background="#0e1116",
    surface="#141921",
    panel="#1d242f",
)


def utc_now() -> datetime:
    """The time of day, in UTC."""
    return datetime.now(UTC)


class LlamaGymApp(App[None]):
    """The playground of one run, or home, where one is chosen."""

    TITLE = "llamagym-tui"
    ENABLE_COMMAND_PALETTE = True
    HORIZONTAL_BREAKPOINTS: ClassVar[list[tuple[int, str]] | None] = [
        (0, "-too-narrow"),
        (MIN_WIDTH, "-narrow"),
        (WIDE, "-wide"),
    ]
    VERTICAL_BREAKPOINTS: ClassVar[list[tuple[int, str]] | None] = [(0, "-too-short"), (MIN_HEIGHT, "-tall")]
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+q", "quit", "Quit", show=False, priority=True)]

    def __init__(
        self,
        config: RunConfig | None = None,
        *,
        agent_class: type[Agent] | None = None,
        client_factory: Callable[[], Client] | None = None,
        clock: Callable[[], datetime] = utc_now,
        next_seed: Callable[[], int] | None = None,
    ) -> None:
        """An app that has started nothing yet.

        Args:
            config: of the run. None: home.
            agent_class: the agent that `config` names; None: looked up when it is needed.
            client_factory: makes the trainer client; None: a process.
            clock: time of day, for demonstrations and run folders.
            next_seed: seeds of a person's episodes; None: at random.
        """
        super().__init__()
        self.register_theme(THEME)
        self.theme = THEME.name
        self.config = config
        self.run_state: RunState | None = initial_state(config) if config else None
        self._agent_class = agent_class
        self._client_factory = client_factory or _trainer_process
        self._clock = clock
        self._next_seed = next_seed or (lambda: random.SystemRandom().randrange(2**31))
        self._client: Client | None = None
        self._playground: PlaygroundScreen | None = None
        self._game: HumanGame | None = None
        self._paint_due = False
        self._leaving = False

    def get_default_screen(self) -> Screen[object]:
        """The first frame is the playground's, or home's."""
        if self.config is not None:
            return self._make_playground(self.config)
        from llamagym_tui.catalog import built_in
        from llamagym_tui.screens.home import HomeScreen

        return HomeScreen(built_in())

    def on_ready(self) -> None:
        """The first frame is painted: now the trainer may have the processor."""
        if self.config is not None:
            self._start_trainer()

    # Home

    @on(Screen.Message if False else PlaygroundScreen.CommandAsked)
    def _placeholder(self) -> None: ...
