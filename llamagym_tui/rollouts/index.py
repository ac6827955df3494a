"""All rollouts of a file, a folder or a glob, as an index that grows: their figures, and where each one stands.

The index is made in a thread, a slice of time after the other, and read by another: lists are only appended to, or
replaced whole. 100,000 rollouts take it some 50 MB; the rollouts themselves stay on disk.
"""

import glob
import re
import time
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path

from msgspec.structs import replace

from llamagym_tui.errors import LlamaGymError, UsageError
from llamagym_tui.rollouts.formats import TextsOf
from llamagym_tui.rollouts.rollout import OPENING, Entry, Rollout
from llamagym_tui.rollouts.sources import RUN_LOG, Lines, Read, Source, sources_of

SLICE_S = 0.05
"""Seconds of reading at a time."""
FIELDS = {
    "steps": lambda rollout: rollout.step is not None,
    "rewards": lambda rollout: rollout.reward is not None,
    "advantages": lambda rollout: (
        rollout.advantage is not None or _first_token(rollout, "advantage")
    ),
    "log-probabilities": lambda rollout: _first_token(rollout, "logprob"),
    "reference log-probabilities": lambda rollout: _first_token(rollout, "reference"),
}
"""What a rollout may have, for people, and whether it has it."""


class RolloutsError(LlamaGymError):
    """A rollout cannot be read."""


class Rollouts:
    """The index. `entries` and `steps` are in the order of the files and their lines."""

    def __init__(self, path: str, *, texts_of: TextsOf | None = None) -> None:
        """An index of which nothing has been read yet.

        Args:
            path: a file, a folder or a glob.
            texts_of: the texts of tokens, by a tokenizer; without one they are shown by their ids.
        Raises:
            UsageError: there is no such file or folder, or it holds no rollouts by its name.
        """
        self.path = path
        self.sources: list[Source] = []
        self.entries: list[Entry] = []
        self.steps: dict[int | None, list[Entry]] = {}
        self.version = 0
        """Raised with every change."""
        self._texts_of = texts_of or _as_ids
        self._files: dict[tuple[int, int], list[Source]] = {}
        """The sources of each file."""
        self._unread: Iterator[None] | None = None
        """Reads what was known at the last look; None: all of it was read."""
        self._notes: dict[tuple[str, str], str] = {}
        """Sentences by file and kind."""
        self._has: set[str] = set()
        """Names of `FIELDS` that some rollout has."""
        self.look_again()
        if not self.sources and not Path(path).expanduser().is_dir():
            raise UsageError(
                f"There are no rollouts at {path}: name a file that ends in .jsonl, .parquet or .db, a folder of such "
                "files, or a glob."
            )

    @property
    def notes(self) -> list[str]:
        """What was skipped and what the files do not have, a sentence each."""
        notes = [each for each in self._notes.values() if each]
        missing = [name for name in FIELDS if name not in self._has]
        if self.entries and missing:
            notes.insert(0, f"These files have no {', no '.join(missing)}.")
        if not self.entries and not any(source.size > source.done for source in self.sources):
            notes.insert(0, f"There are no rollouts at {self.path} yet.")
        return notes

    @property
    def progress(self) -> tuple[int, int]:
        """Bytes that have been read, and all."""
        return sum(each.done for each in self.sources), sum(each.size for each in self.sources)

    def look_again(self) -> None:
        """Find new files, and files that have grown, have moved or were written anew."""
        if self._unread is not None:
            return  # What is known now is read first.
        missing = dict(self._files)
        for path in _files(self.path):
            try:
                key = _key(path)
                missing.pop(key, None)
                if key not in self._files:
                    self._files[key] = sources_of(path, self._texts_of)
                    self.sources += self._files[key]
                for source in list(self._files[key]):
                    source.path = path
                    self._look(source, key)
            except OSError as error:
                self._note(path, "look", f"{path} cannot be read: {error.strerror or error}.")
        for key, sources in missing.items():
            self._find_again(key, sources)

    def read_on(self) -> bool:
        """Read for about `SLICE_S`; True if there is more."""
        if self._unread is None:
            self._unread = self._reading()
        until = time.monotonic() + SLICE_S
        for _ in self._unread:
            if time.monotonic() > until:
                return True
        self._unread = None
        return False

    def rollout(self, entry: Entry) -> Rollout:
        """The whole of a rollout. Raises RolloutsError: its file was removed or changed."""
        source = self.sources[entry.source]
        try:
            rollout = source.at(entry.place, entry.size)[entry.at]
        except (OSError, ValueError, IndexError) as error:
            raise RolloutsError(
                f"The rollout cannot be read ({error}); {source.path} was removed or changed."
            ) from error
        return replace(rollout, step=entry.step)

    def _reading(self) -> Iterator[None]:
        """Read all that is known, a place after the other."""
        for at, source in enumerate(list(self.sources)):
            if source.done >= source.size:
                continue
            fault = ""
            try:
                for read in source.read():
                    self._append(at, source, read)
                    yield
            except (OSError, ValueError) as error:
                source.done = source.size
                fault = f"{source.path} cannot be read: {error}."
            self._note(source.path, "read", fault)
            for fault, count in source.faults.items():
                self._note(
                    source.path, fault, f"Left out of {source.path.name}: {fault} ({count:,})."
                )

    def _append(self, at: int, source: Source, read: Read) -> None:
        for index, rollout in enumerate(read.rollouts):
            step = source.step if rollout.step is None else rollout.step
            rollout = replace(rollout, step=step)
            self._has |= {name for name in FIELDS.keys() - self._has if FIELDS[name](rollout)}
            said = rollout.said
            entry = Entry(
                source=at,
                place=read.place,
                size=read.size,
                at=index,
                step=step,
                group=hash(rollout.group or _prompt(rollout)),
                reward=rollout.reward,
                advantage=rollout.advantage,
                length=sum(len(each.tokens) for each in rollout.messages) or len(said),
                opening=" ".join(said[: 2 * OPENING].split())[:OPENING],
            )
            self.entries.append(entry)
            self.steps.setdefault(step, []).append(entry)
        self.version += 1

    def _look(self, source: Source, key: tuple[int, int]) -> None:
        """Look how far a file has grown. If it was written anew, what it had is forgotten."""
        before = source.size
        source.look()
        if source.is_rewritten():
            at, of_file = self.sources.index(source), self._files[key].index(source)
            self.sources[at] = self._files[key][of_file] = sources_of(source.path, self._texts_of)[
                of_file
            ]
            self.sources[at].look()
            self.entries = [each for each in self.entries if each.source != at]
            self.steps = {}
            for each in self.entries:
                self.steps.setdefault(each.step, []).append(each)
            self._note(
                source.path,
                "anew",
                f"{source.path} was written anew, and is read from its beginning.",
            )
        is_cut = isinstance(source, Lines) and source.is_cut and source.size == before
        self._note(
            source.path,
            "cut",
            f"The last line of {source.path.name} is cut off; it is read once it is whole."
            if is_cut
            else "",
        )

    def _find_again(self, key: tuple[int, int], sources: Sequence[Source]) -> None:
        """Follow a file that was renamed, as a log that is rotated."""
        for source in sources:
            folder = source.path.parent
            moved = [each for each in _listed(folder) if _key(each) == key]
            if moved:
                source.path = moved[0]
            else:
                self._note(
                    source.path,
                    "gone",
                    f"{source.path} was removed; its rollouts cannot be opened any more.",
                )

    def _note(self, path: Path, kind: str, sentence: str) -> None:
        """Keep a sentence about a file in place of the last one of its kind; an empty one takes it back."""
        if self._notes.get((str(path), kind), "") != sentence:
            self._notes[str(path), kind] = sentence
            self.version += 1


def _files(path: str) -> list[Path]:
    """The files that a path names, in their natural order; of a run of ours, its event log alone."""
    named = Path(path).expanduser()
    if named.is_dir():
        found = [named / RUN_LOG] if (named / RUN_LOG).exists() else _listed(named, deep=True)
    elif named.exists():
        found = [named]
    else:
        found = [Path(each) for each in glob.glob(str(named), recursive=True)]
    return sorted(
        found,
        key=lambda each: [
            int(part) if part.isdigit() else part for part in re.split(r"(\d+)", str(each))
        ],
    )


def _listed(folder: Path, *, deep: bool = False) -> list[Path]:
    """The files of a folder, and of those in it."""
    try:
        return [
            each for each in (folder.rglob("*") if deep else folder.iterdir()) if each.is_file()
        ]
    except OSError:
        return []


def _key(path: Path) -> tuple[int, int]:
    """What a file is known by whatever its name."""
    found = path.stat()
    return found.st_dev, found.st_ino


def _prompt(rollout: Rollout) -> str:
    """What was said before the policy spoke."""
    before = takewhile(lambda each: each.role != "assistant", rollout.messages)
    return "\n".join(each.text for each in before)


def _first_token(rollout: Rollout, field: str) -> bool:
    """True if a token of the rollout has a value of this name."""
    return any(
        getattr(each.tokens[0], field) is not None for each in rollout.messages if each.tokens
    )


def _as_ids(ids: Sequence[int]) -> list[str]:
    return [f"⟨{each}⟩" for each in ids]
