"""The one way in which a screen, a dialog or a widget requests something of the trainer: it posts `CommandAsked`.

The message bubbles to the app, which alone records requests in the run state and sends them.
"""

from collections.abc import Callable
from dataclasses import dataclass

from textual.message import Message

from llamagym_tui.protocol.commands import AnyCommand
from llamagym_tui.state.run import RunState


@dataclass
class CommandAsked(Message):
    """A request to the trainer; it is sent unless it is pending already."""

    command: AnyCommand | Callable[[RunState], AnyCommand]
    """What is sent. A function makes it when the app takes the request, from all that was requested before: so two
    quick presses of `]` watch two environments further."""
