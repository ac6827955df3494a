"""A class in a folder: many people play the episodes that the model has played, each at a seat of their own.

``class.json`` has the settings and the model's part. Each seat has a file of demonstrations, to which an episode is
appended as it ends; a seat goes on where its file ends.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from llamagym_tui.demos import files as demo_files
from llamagym_tui.demos.human_game import MATCH, MatchAgainstModel
from llamagym_tui.errors import LlamaGymError, UsageError
from llamagym_tui.protocol.events import MatchPlayed
from llamagym_tui.settings import RunConfig
from llamagym_tui.state.returns import MeanReturn, mean_return
from llamagym_tui.user_files import file_content, replace_file

CLASS_FILE = "class.json"


class ClassRecord(Struct, frozen=True, kw_only=True):
    """The content of ``class.json``."""

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
        """A new class. Raises LlamaGymError if its folder cannot be written."""
        try:
            replace_file(folder / CLASS_FILE, msgspec.json.encode(record))
        except OSError as error:
            why = error.strerror or error
            raise LlamaGymError(f"The class cannot be kept in {folder} ({why}).") from error
        return cls(folder, record)

    @classmethod
    def read(cls, folder: Path) -> "Classroom":
        """The class of a folder. Raises UsageError if it holds none."""
        try:
            content = file_content(folder / CLASS_FILE)
            return cls(folder, msgspec.json.decode(content, type=ClassRecord))
        except (OSError, ValueError, RecursionError) as error:
            raise UsageError(f"{folder} holds no class ({error}).") from error

    def seat_path(self, seat: int) -> Path:
        """The file for the episodes of a seat, counted from 1; it comes with the first episode."""
        return self.folder / f"seat-{seat:02}.jsonl"

    def match_of(self, seat: int) -> MatchAgainstModel:
        """The returns of a seat, in the order of the episodes.

        The first of two plays of an episode counts. Raises DemoFileError if the file cannot be read.
        """
        path = self.seat_path(seat)
        found: dict[int | None, float] = {}
        for demo in demo_files.read(path) if path.exists() else ():
            found.setdefault(demo.seed, demo.episode_return)
        match = MatchAgainstModel(self.record.match.seed, [])
        while not match.is_over and match.next_seed in found:
            match.returns.append(found[match.next_seed])
        return match

    def table(self, own: int | None = None) -> list[str]:
        """A line for the model and each seat that plays, the best first; a mark stands before the own seat.

        Whatever stands behind a ± is half a 95 % interval. Seats and model have played the same episodes, so the
        difference is over pairs. Raises DemoFileError if a seat's file cannot be read.
        """
        model = self.record.match
        its_mean = _mean([value for value in model.returns if value is not None])
        over = [(its_mean.mean, f"  {'model':<8}{its_mean.text}")]
        playing = []
        for seat in range(1, self.record.seats + 1):
            returns = self.match_of(seat).returns
            name = f"{'▸' if seat == own else ' '} {f'seat {seat}':<8}"
            if len(returns) == MATCH:
                mean = _mean(returns)
                ahead = ahead_of(returns, model)
                over.append((mean.mean, f"{name}{mean.text:<20}{ahead.text}"))
            elif returns:
                playing.append(f"{name}{len(returns)} of {MATCH} episodes played")
        over.sort(key=lambda row: -row[0])
        header = f"{'':<10}{'mean return':<20}more than the model"
        return [header, *(text for _, text in over), *playing]


def ahead_of(returns: Sequence[float], model: MatchPlayed) -> MeanReturn:
    """The mean lead over the model, over the episodes that the model has finished, too."""
    pairs = zip(returns, model.returns, strict=True)
    return _mean([theirs - its for theirs, its in pairs if its is not None])


def _mean(returns: Sequence[float]) -> MeanReturn:
    return mean_return(returns) or MeanReturn(0.0, 0.0, 0)
