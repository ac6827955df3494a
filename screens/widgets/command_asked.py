"""The one way in which a screen asks the trainer for something."""

from __future__ import annotations

from dataclasses import dataclass

from textual.message import Message

from llamagym_tui.protocol.commands import AnyCommand


@dataclass
class CommandAsked(Message):
    """A key asked something of the trainer."""

    command: AnyCommand
