"""The draft of a system prompt on disk, so that it survives a crash; and prompt files that the user names.

Each agent has one draft, kept from the first change until it is applied or discarded.
"""

import re
from pathlib import Path

from llamagym_tui.errors import PromptFileError
from llamagym_tui.user_files import data_dir, file_text, replace_file


class Draft:
    def __init__(self, agent: str) -> None:
        name = re.sub(r"[^A-Za-z0-9_.-]+", "-", agent).strip("-.") or "agent"
        self.path = data_dir() / "drafts" / f"{name}.txt"

    def read(self) -> str | None:
        """The draft; None if there is none that can be read."""
        try:
            return file_text(self.path).removesuffix("\n")
        except (OSError, UnicodeDecodeError):
            return None

    def keep(self, text: str) -> None:
        write_prompt(self.path, text)

    def forget(self) -> None:
        self.path.unlink(missing_ok=True)


def write_prompt(path: Path, text: str) -> None:
    """Write a prompt; the old file stays until the new one is whole, and folders are made.

    Raises:
        PromptFileError: it cannot be written.
    """
    path = path.expanduser()
    try:
        replace_file(path, f"{text}\n".encode())
    except OSError as error:
        raise PromptFileError(f"{path} cannot be written: {error.strerror or error}.") from error
