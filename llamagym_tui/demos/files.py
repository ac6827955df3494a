"""Demonstrations on disk: append, write, read, check, merge and sum up files of JSON Lines.

`demonstration` defines the line, `jsonl` keeps it safe on disk, `faults` checks it; a failure is a DemoFileError.
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
    path: Path
    episodes: int
    mean_return: float
    """0 when there are none."""
    unreadable: tuple[int, ...] = ()
    """Numbers of the lines that are no demonstration."""
    fault: str = ""
    """Why the file cannot be read, for people; empty if it can."""


class Merged(NamedTuple):
    episodes: int
    duplicates: int
    """Episodes left out because an equal one came before."""


def demos_dir() -> Path:
    """Where a person's demonstrations live; not made. LLAMAGYM_TUI_DATA replaces the user's data folder."""
    return data_dir() / "demos"


def default_path(agent_name: str) -> Path:
    """The file to which a person's episodes with an agent are appended."""
    return demos_dir() / f"{agent_name}.jsonl"


@contextlib.contextmanager
def file_errors(failed: str, advice: str = "choose another place") -> Iterator[None]:
    """Turns errors of files and locks into DemoFileError: what failed, why, and what to do."""
    try:
        yield
    except Timeout as error:
        raise DemoFileError(
            f"{failed}: another program holds the file; try again when that one is done."
        ) from error
    except OSError as error:
        raise DemoFileError(f"{failed} ({error.strerror or error}); {advice}.") from error


def append(path: Path, demo: Demonstration) -> None:
    """Add one demonstration as the last line, on disk when this returns.

    A torn last line, left by a crash, is moved to ``<path>.torn`` first.
    """
    line = encode(demo)
    with file_errors(f"The episode was not saved to {path}", "make room, or check its rights"):
        jsonl.append_line(path, line, is_whole=readable)


def write(path: Path, demonstrations: Iterable[Demonstration]) -> int:
    """Replace a file as a whole; returns how many episodes it has."""
    lines = [encode(demo) for demo in demonstrations]
    with file_errors(f"{path} cannot be written"):
        jsonl.replace_lines(path, lines)
    return len(lines)


def read(path: Path) -> list[Demonstration]:
    """All demonstrations of a file; a torn last line is not one, and any other faulty one is an error."""
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
    """What is wrong with a file, by line, as `faults`; empty if it can be trained on."""
    return faults(lines_of(path), agent)


def merge(paths: Sequence[Path], output: Path) -> Merged:
    """Write the demonstrations of several files to one, in order, equal ones once.

    The output is read, if it is one of the inputs, and replaced while no other program can append to it.
    """
    episodes = _encoded(paths)  # a fault is found before anything is touched

    def change(present: Sequence[bytes]) -> Sequence[bytes]:
        episodes[:] = _encoded(paths)
        return list(dict.fromkeys(episodes))

    with file_errors(f"{output} cannot be written"):
        jsonl.rewrite(output, change, is_whole=readable)
    different = len(set(episodes))
    return Merged(different, len(episodes) - different)


def _encoded(paths: Sequence[Path]) -> list[bytes]:
    return [encode(demo) for path in paths for demo in read(path)]


def summaries(place: Path) -> list[DemoFile]:
    """A file of demonstrations, or those in a folder, by name; what cannot be read is listed, not raised."""
    files = sorted(place.glob("*.jsonl")) if place.is_dir() else [place] if place.exists() else []
    return [_summary(path) for path in files]


def lines_of(path: Path) -> Iterator[jsonl.Line]:
    """Its lines, faulty ones too."""
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
    return DemoFile(
        path,
        len(returns),
        sum(returns) / len(returns) if returns else 0.0,
        tuple(unreadable),
        fault,
    )
