"""Files of demonstrations, in JSON Lines: append, write, read, check, merge and summarise them.

`demonstration` defines a line, `jsonl` keeps it safe on disk, and `faults` checks it. A failure raises DemoFileError.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from filelock import Timeout

from llamagym_tui.demos import jsonl
from llamagym_tui.demos.demonstration import MOST_LINE, Demonstration, decode, encode, readable
from llamagym_tui.demos.faults import Fault, faults
from llamagym_tui.errors import DemoFileError
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.user_files import data_dir


class DemoFile(NamedTuple):
    """A file of demonstrations in a few figures."""

    path: Path
    episodes: int
    mean_return: float
    """The mean return of its episodes; 0 if there are none."""
    unreadable: tuple[int, ...] = ()
    """Numbers of the lines that hold no demonstration."""
    fault: str = ""
    """Why the file cannot be read, for people; empty if it can."""


class Merged(NamedTuple):
    """What came of merging files."""

    episodes: int
    duplicates: int
    """The number of episodes that were left out because an equal one came before."""


def demos_dir() -> Path:
    """The folder for a person's demonstrations, which may not exist yet."""
    return data_dir() / "demos"


def default_path(agent_name: str) -> Path:
    """The file to which a person's episodes with an agent are appended."""
    return demos_dir() / f"{agent_name}.jsonl"


@contextlib.contextmanager
def file_errors(failed: str, advice: str = "choose another place") -> Iterator[None]:
    """Turn errors of files and locks into DemoFileError, which says what failed, why, and what to do."""
    try:
        yield
    except Timeout as error:
        raise DemoFileError(
            f"{failed}: another program holds the file; try again when that one is done."
        ) from error
    except OSError as error:
        raise DemoFileError(f"{failed} ({error.strerror or error}); {advice}.") from error


def append(path: Path, demo: Demonstration) -> None:
    """Add a demonstration as the last line, which is on the disk when this returns.

    If a crash has left an incomplete last line, it is first moved to ``<path>.torn``.
    """
    line = encode(demo)
    with file_errors(f"The episode was not saved to {path}", "make room, or check its rights"):
        jsonl.append_line(path, line, is_whole=readable)


def write(path: Path, demonstrations: Iterable[Demonstration]) -> int:
    """Replace a file as a whole; returns how many episodes it has then."""
    lines = [encode(demo) for demo in demonstrations]
    with file_errors(f"{path} cannot be written"):
        jsonl.replace_lines(path, lines)
    return len(lines)


def read(path: Path) -> list[Demonstration]:
    """All demonstrations of a file; an incomplete last line is ignored, and any other line with a fault is an error."""
    demos = []
    for line in lines_of(path):
        try:
            demos.append(decode(line.content))
        except ValueError as error:
            if line.torn:
                break
            why = f"it has over {MOST_LINE:,} bytes" if line.too_long else error
            raise DemoFileError(
                f"{path}, line {line.number}: {why}; see `llamagym-tui demos check {path}`."
            ) from error
    return demos


def check(path: Path, agent: AgentBase | None = None) -> list[Fault]:
    """What is wrong with a file, line by line, as `faults` finds it; empty if it can be trained on."""
    return faults(lines_of(path), agent)


def merge(paths: Sequence[Path], output: Path) -> Merged:
    """Write the demonstrations of several files to one, in order, and of equal ones only the first.

    The output may be one of the inputs: it is read and replaced while no other program can append to it.
    """
    episodes = _encoded(paths)  # finds faults before anything is changed

    def change(present: Sequence[bytes]) -> Sequence[bytes]:
        episodes[:] = _encoded(paths)  # once more, now that nobody else writes
        return list(dict.fromkeys(episodes))

    with file_errors(f"{output} cannot be written"):
        jsonl.rewrite(output, change, is_whole=readable)
    different = len(set(episodes))
    return Merged(different, len(episodes) - different)


def _encoded(paths: Sequence[Path]) -> list[bytes]:
    """The lines of all demonstrations in some files."""
    lines: list[bytes] = []
    for path in paths:
        lines.extend(encode(demo) for demo in read(path))
    return lines


def summaries(place: Path) -> list[DemoFile]:
    """A file of demonstrations, or the files in a folder by name; a file that cannot be read is listed, too."""
    if place.is_dir():
        return [_summary(path) for path in sorted(place.glob("*.jsonl"))]
    return [_summary(place)] if place.exists() else []


def lines_of(path: Path) -> Iterator[jsonl.Line]:
    """The lines of a file, also those with a fault."""
    with file_errors(f"{path} cannot be read", "check the path and its rights"):
        yield from jsonl.lines(path)


def _summary(path: Path) -> DemoFile:
    returns: list[float] = []
    unreadable: list[int] = []
    fault = ""
    try:
        for line in lines_of(path):
            try:
                returns.append(decode(line.content).episode_return)
            except ValueError:
                unreadable.append(line.number)
    except DemoFileError as error:
        fault = str(error)
    mean = sum(returns) / len(returns) if returns else 0.0
    return DemoFile(path, len(returns), mean, tuple(unreadable), fault)
