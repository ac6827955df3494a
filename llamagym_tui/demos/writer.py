"""A person's finished episodes on their way to the disk; those that could not be written are kept and tried again.

`add` returns at once; `save` and `take_back` may take a moment and can be called in any thread.
"""

import threading
from pathlib import Path

from llamagym_tui.demos import edits
from llamagym_tui.demos import files as demo_files
from llamagym_tui.demos.demonstration import Demonstration, encode
from llamagym_tui.errors import DemoFileError


class DemoWriter:
    """Appends episodes to a file, in order; the file is made with its first episode."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.saved = 0
        """The number of episodes on the disk."""
        self.fault = ""
        """Why episodes have to wait, for people; empty if none does."""
        self._waiting: list[Demonstration] = []
        self._writing = threading.Lock()

    @property
    def waiting(self) -> int:
        """The number of episodes that are not on the disk yet."""
        return len(self._waiting)

    def add(self, demo: Demonstration) -> None:
        """Let an episode wait for the next `save`."""
        self._waiting.append(demo)

    def save(self) -> None:
        """Write the episodes that wait; `saved`, `waiting` and `fault` say what came of it."""
        with self._writing:
            self.fault = ""
            while self._waiting:
                try:
                    demo_files.append(self.path, self._waiting[0])
                except DemoFileError as error:
                    self.fault = str(error)
                    return
                self._waiting.pop(0)
                self.saved += 1

    def take_back(self, demo: Demonstration) -> None:
        """Take an episode back: from those that wait or, if it is in the file, from there to the file's trash.

        Raises:
            DemoFileError: the file cannot be changed.
        """
        with self._writing:
            if demo in self._waiting:
                self._waiting.remove(demo)
                return
            edits.remove(self.path, [encode(demo)])
            self.saved -= 1
