"""A person's finished episodes on their way to disk: what could not be written is kept, and tried again.

`add` returns at once; `save` and `take_back` may block for a moment and may be called in any thread.
"""

import threading
from pathlib import Path

from llamagym_tui.demos import edits
from llamagym_tui.demos import files as demo_files
from llamagym_tui.demos.demonstration import Demonstration, encode
from llamagym_tui.errors import DemoFileError


class DemoWriter:
    """Appends episodes to one file, in order; the file is made with its first episode."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.saved = 0
        """Episodes on disk."""
        self.fault = ""
        """Why episodes wait, for people; empty if none does."""
        self._waiting: list[Demonstration] = []
        self._writing = threading.Lock()

    @property
    def waiting(self) -> int:
        """Episodes that are not on disk yet."""
        return len(self._waiting)

    def add(self, demo: Demonstration) -> None:
        self._waiting.append(demo)

    def save(self) -> None:
        """Write what waits; `saved`, `waiting` and `fault` have the result."""
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
        """Take an episode back: out of the file and into its trash (raises as `edits`), or out of those that wait."""
        with self._writing:
            if demo in self._waiting:
                self._waiting.remove(demo)
                return
            edits.remove(self.path, [encode(demo)])
            self.saved -= 1
