"""A class in a folder: many people play the episodes that the model has played, each at a seat of their own.

``class.json`` has the settings and the model's part. Each seat has a file of demonstrations, to which an episode is
appended as it ends: that file alone says how far the seat is, so whoever comes back to it goes on there.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import msgspec
from msgspec import Struct

from llamagym_tui.config import RunConfig, settings_kept
from llamagym_tui.demos import files as demo_files
from llamagym_tui.demos.human_game import MATCH, MatchAgainstModel
from llamagym_tui.errors import LlamaGymError, UsageError
from llamagym_tui.protocol.events import MatchPlayed
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.returns import MeanReturn, counted, margin, mean_return
from llamagym_tui.state.comparison import difference_text
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
            record = msgspec.json.decode(content, type=ClassRecord)
            config = settings_kept(msgspec.json.decode(content)["config"])
            return cls(folder, msgspec.structs.replace(record, config=config))
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
        match = MatchAgainstModel(self.record.match.seed, [], self.record.config.seed_bits)
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


class ClassLine(NamedTuple):
    text: str
    style: str = ""
    """For a screen."""


def ahead_of(returns: Sequence[float], model: MatchPlayed) -> MeanReturn:
    """By how much more than the model somebody has earned, over the episodes of a match that it has finished, too."""
    pairs = zip(returns, model.returns, strict=True)
    by = mean_return([theirs - its for theirs, its in pairs if its is not None])
    return by or MeanReturn(0.0, 0.0, 0)


def class_lines(
    record: ClassRecord, matches: dict[int, MatchAgainstModel], own: int | None = None
) -> list[ClassLine]:
    """What is known of a class: what it earned as a whole, then a line for each seat, the best first.

    Args:
        own: the seat of who reads it. None: nobody's.
    """
    model = record.match
    over = {seat: match.returns for seat, match in matches.items() if match.is_over}
    means = {f"seat {seat}": _mean(returns) for seat, returns in over.items()}
    ahead = {f"seat {seat}": ahead_of(returns, model) for seat, returns in over.items()}
    means["model"] = _mean([value for value in model.returns if value is not None])
    lines = [ClassLine(text) for text in _sentences(record, list(over.values()))]
    lines.append(ClassLine(""))
    lines.append(ClassLine(f"{'':<10}{'mean return':<20}more than the model", "bold"))
    for name in sorted(means, key=lambda name: -means[name].mean):
        if name == "model":
            lines.append(ClassLine(f"  {name:<8}{means[name].text}", "bold $accent"))
            continue
        mark, style = ("▸ ", "bold") if name == f"seat {own}" else ("  ", "")
        lines.append(
            ClassLine(f"{mark}{name:<8}{means[name].text:<20}{_ahead_text(ahead[name])}", style)
        )
    for seat, match in matches.items():
        if not match.is_over:
            name = f"seat {seat}"
            played = f"{len(match.returns)} of {MATCH} episodes played"
            lines.append(ClassLine(f"  {name:<8}{played}", "$aside"))
    return lines


def _mean(returns: Sequence[float]) -> MeanReturn:
    return mean_return(returns) or MeanReturn(0.0, 0.0, 0)


def _ahead_text(by: MeanReturn) -> str:
    if not by.mean and not by.stderr:
        return "as much, in every episode"
    return f"{by.text}{', which may be chance' if _may_be_chance(by) else ''}"


def _may_be_chance(by: MeanReturn) -> bool:
    return abs(by.mean) <= margin(by.stderr)


def _sentences(record: ClassRecord, over: Sequence[Sequence[float]]) -> list[str]:
    """What the class earned as a whole against the model, and how many seats differ from it."""
    if not over:
        return [f"No seat has played all {MATCH} episodes yet."]
    model = record.match
    # All seats share the luck of an episode, so that the episodes are what the interval is over, and not the seats.
    of_class = [fmean(returns) for returns in zip(*over, strict=True)]
    difference = difference_text(ahead_of(of_class, model), one_line(record.return_unit))
    certain = sum(not _may_be_chance(ahead_of(returns, model)) for returns in over)
    return [
        f"{counted(len(over), 'seat')} against the model: {difference}.",
        f"Apart from it by more than their ±: {certain} of {len(over)}; by chance alone 1 in 20 would be.",
    ]
