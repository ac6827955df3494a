"""Commands that were requested and not handled yet, in the order in which they came."""

import contextlib
import queue
from collections import deque

from llamagym_tui.protocol.commands import AnyCommand

CommandQueue = queue.SimpleQueue[AnyCommand]
"""A `SimpleQueue`, because a signal handler may put into it."""


class Inbox:
    """Reads, in the session's own thread, a queue that any thread may put into."""

    def __init__(self, command_queue: CommandQueue) -> None:
        self._queue = command_queue
        self._waiting: deque[AnyCommand] = deque()

    def take(self, *kinds: type[AnyCommand]) -> AnyCommand | None:
        """The oldest command or, ahead of others, the oldest of these kinds; None if there is none."""
        self._collect()
        found = next(
            (command for command in self._waiting if not kinds or isinstance(command, kinds)), None
        )
        if found is not None:
            self._waiting.remove(found)
        return found

    def wait(self, timeout_s: float | None = None) -> None:
        """Block until there is a command, or for so long."""
        if not self._waiting:
            with contextlib.suppress(queue.Empty):
                self._waiting.append(self._queue.get(timeout=timeout_s))

    def holds(self, *kinds: type[AnyCommand]) -> bool:
        """True if a command of these kinds waits; without kinds, if any does."""
        self._collect()
        return any(not kinds or isinstance(command, kinds) for command in self._waiting)

    def _collect(self) -> None:
        while not self._queue.empty():
            self._waiting.append(self._queue.get())
