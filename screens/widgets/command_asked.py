"""Requests to the trainer: a screen, a dialog or a widget posts `CommandAsked`.

The app alone records requests in the run state and sends them.
"""

from collections.abc import Callable
from dataclasses import dataclass

from textual.message import Message

from llamagym_tui.protocol.commands import AnyCommand
from llamagym_tui.state.run import RunState


@dataclass
class CommandAsked(Message):
    """A request to the trainer; the app drops it while the same request is pending."""

    command: AnyCommand | Callable[[RunState], AnyCommand]
    """The command, or a function that makes it from the state when the app takes the request: two quick presses of `]`
    watch two environments further."""
