"""Commands that were asked and not acted on yet, in the order in which they came."""

from __future__ import annotations

import contextlib
import queue
from collections import deque

from llamagym_tui.protocol.commands import AnyCommand

CommandQueue = queue.SimpleQueue[AnyCommand]
"""A `SimpleQueue`, because a signal handler may put into it."""


class Inbox:
    """What other threads asked of a session, read in its own."""

    def __init__(self, asked: CommandQueue) -> None:
        """An inbox over a queue that any thread may put into."""
        self._asked = asked
        self._waiting: deque[AnyCommand] = deque()

    def take(self) -> AnyCommand | None:
        """The oldest command; None if there is none."""
        self._collect()
        return self._waiting.popleft() if self._waiting else None

    def take_first(self, *kinds: type[AnyCommand]) -> AnyCommand | None:
        """The oldest command of these kinds, before those of others; None if there is none."""
        self._collect()
        found = next((command for command in self._waiting if isinstance(command, kinds)), None)
        if found is not None:
            self._waiting.remove(found)
        return found

    def wait(self, timeout_s: float | None = None) -> None:
        """Hold still until there is a command, or for so long."""
        if not self._waiting:
            with contextlib.suppress(queue.Empty):
                self._waiting.append(self._asked.get(timeout=timeout_s))

    def holds(self, *kinds: type[AnyCommand]) -> bool:
        """Whether a command of these kinds waits."""
        self._collect()
        return any(isinstance(command, kinds) for command in self._waiting)

    def _collect(self) -> None:
        while not self._asked.empty():
            self._waiting.append(self._asked.get())
