"""A class in a folder: many people play the episodes that the model has played, each at a seat of their own.

``class.json`` has the settings and the model's part. Each seat has a file of demonstrations, to which an episode is
appended as it ends: that file alone says how far the seat is, so whoever comes back to it goes on there.
"""

from pathlib import Path

import msgspec
from msgspec import Struct

from llamagym_tui.config import RunConfig
from llamagym_tui.demos import files as demo_files
from llamagym_tui.demos.human_game import MatchAgainstModel
from llamagym_tui.errors import LlamaGymError, UsageError
from llamagym_tui.protocol.events import MatchPlayed
from llamagym_tui.user_files import file_content, replace_file

CLASS_FILE = "class.json"
TABLE_FILE = "table.txt"
"""The class against the model, for people."""


class ClassRecord(Struct, frozen=True, kw_only=True):
    """What ``class.json`` holds."""

    config: RunConfig
    """Settings by which the model has played, with its prompt."""
    match: MatchPlayed
    """The model's part."""
    seats: int
    return_unit: str = ""


class Classroom:
    """The folder of a class."""

    def __init__(self, folder: Path, record: ClassRecord) -> None:
        self.folder = folder
        self.record = record

    @classmethod
    def begun(cls, folder: Path, record: ClassRecord) -> "Classroom":
        """A new class; raises LlamaGymError if its folder cannot be written."""
        try:
            replace_file(folder / CLASS_FILE, msgspec.json.encode(record))
        except OSError as error:
            raise LlamaGymError(
                f"The class cannot be kept in {folder} ({error.strerror or error}); make room, or check its rights."
            ) from error
        return cls(folder, record)

    @classmethod
    def read(cls, folder: Path) -> "Classroom":
        """The class of a folder; raises UsageError if it holds none."""
        try:
            content = file_content(folder / CLASS_FILE)
            return cls(folder, msgspec.json.decode(content, type=ClassRecord))
        except (OSError, ValueError, RecursionError) as error:
            raise UsageError(
                f"{folder} holds no class ({error}); name the folder that `llamagym-tui serve --seats` has printed."
            ) from error

    def seat_path(self, seat: int) -> Path:
        """The file for the episodes of a seat, counted from 1; there is none before its first episode."""
        return self.folder / f"seat-{seat:02}.jsonl"

    def match_of(self, seat: int) -> MatchAgainstModel:
        """How far a seat is: its returns, in the order of the episodes.

        An episode that is there twice counts as it was played first. Raises DemoFileError if the file cannot be read.
        """
        path = self.seat_path(seat)
        found: dict[int | None, float] = {}
        for demo in demo_files.read(path) if path.exists() else ():
            found.setdefault(demo.seed, demo.episode_return)
        match = MatchAgainstModel(self.record.match.seed, [])
        while not match.is_over:
            if match.next_seed not in found:
                break
            match.returns.append(found[match.next_seed])
        return match

    @property
    def matches(self) -> dict[int, MatchAgainstModel]:
        """How far each seat is at which an episode has ended."""
        seats = range(1, self.record.seats + 1)
        return {seat: self.match_of(seat) for seat in seats if self.seat_path(seat).exists()}
