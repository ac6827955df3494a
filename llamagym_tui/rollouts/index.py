"""All rollouts of a file, a folder or a glob, as an index that grows: their figures, and where each one stands.

The index is made in a thread, a slice of time after the other, and read by another: lists are only appended to, or
replaced whole. 100,000 rollouts take it some 50 MB; the rollouts themselves stay on disk.
"""

import glob
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

from msgspec.structs import replace

from llamagym_tui.errors import LlamaGymError, UsageError
from llamagym_tui.rollouts.figures import StepFigures, step_figures
from llamagym_tui.rollouts.formats import TextsOf, ill_typed, rollouts_of, summed
from llamagym_tui.rollouts.rollout import OPENING, Entry, Record, Rollout
from llamagym_tui.rollouts.sources import RUN_LOG, Source, source_of, written

SLICE_S = 0.05
"""Seconds of reading at a time."""
TAG = re.compile(r"</?\w+>")
"""Begins or ends a thought or a call."""
FIELDS = {
    "steps": "step",
    "rewards": "reward",
    "advantages": "advantage",
    "log-probabilities": "logprob",
    "reference log-probabilities": "reference",
}
"""What a rollout or its tokens may have, for people, and as a field."""


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
        self.told: dict[int | None, Record] = {}
        """What the files themselves say of steps, by the names of `UpdateStats`."""
        self.version = 0
        """Raised with every change of the entries."""
        self._texts_of = texts_of or self._as_ids
        self._shows_ids = False
        self._summed: dict[str, None] = {}
        """Columns of TRL's whose sum is shown as the reward."""
        self._unread: Iterator[None] | None = None
        """Reads what was known at the last look; None: all of it was read."""
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
        notes = []
        for source in self.sources:
            for fault, count in source.faults.items():
                notes.append(f"Left out of {source.path.name}: {fault} ({count:,}).")
            if source.note:
                notes.append(source.note)
        missing = [name for name in FIELDS if name not in self._has]
        if self.entries and missing:
            notes.insert(0, f"These files have no {', no '.join(missing)}.")
        if len(self._summed) > 1:
            columns = ", ".join(self._summed)
            notes.append(f"The reward is the plain sum of {columns}: the files have no weights.")
        if self._shows_ids:
            notes.append("Tokens are shown by their ids; --model NAME gives their texts.")
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
        for source in list(self.sources):
            self._look(source)
        known = {source.path for source in self.sources}
        for path in _files(self.path):
            found = None if path in known else source_of(path.resolve())
            if found is not None and found.path not in known:  # a link may be another name of it
                known.add(found.path)
                self.sources.append(found)
                self._look(found)
        self._unread = self._reading()

    def read_on(self) -> bool:
        """Read for about `SLICE_S`; True if there is more."""
        until = time.monotonic() + SLICE_S
        for _ in self._unread or ():
            if time.monotonic() > until:
                return True
        self._unread = None
        return False

    def figures(self, step: int | None) -> StepFigures:
        """The figures of a step, or of all rollouts.

        A run of ours keeps only some episodes; its reward is then the mean return of all that the step's update learnt
        from.
        """
        entries = self.entries if step is None else self.steps[step]
        found, told = step_figures(step, entries), self.told.get(step, {})
        if told.get("episodes", 0) <= len(entries):
            return found
        return found._replace(
            rollouts=told["episodes"], mean=told["mean_return"], spread=told["return_std"]
        )

    def rollout(self, entry: Entry) -> Rollout:
        """The whole of a rollout. Raises RolloutsError: its file was removed or changed."""
        source = self.sources[entry.source]
        try:
            rollout = rollouts_of(source.at(entry.place), self._texts_of)[entry.at]
        except (OSError, ValueError, IndexError) as error:
            raise RolloutsError(
                f"The rollout cannot be read ({error}); {source.path} was removed or changed."
            ) from error
        return replace(rollout, step=entry.step)

    def _reading(self) -> Iterator[None]:
        """Read all that is known, a record after the other."""
        for at, source in enumerate(self.sources):
            if source.done >= source.size:
                continue
            try:
                for place, record in source.read():
                    self._append(at, place, record)
                    yield
            except (OSError, ValueError) as error:
                source.done = source.size
                source.note = f"{source.path} cannot be read: {error}."
            self.told |= source.told

    def _append(self, at: int, place: int, record: Record) -> None:
        """Enter the rollouts of a record; what it lacks is counted."""
        source = self.sources[at]
        try:
            rollouts = rollouts_of(record, self._texts_of)
            self._summed |= dict.fromkeys(summed(record))
        except (TypeError, OverflowError):  # what should be a number names or indexes something
            rollouts = []
        if not rollouts:
            source.faults["records without a conversation"] += 1
        for name in ill_typed(record):
            source.faults[f"values of {name} that are no number"] += 1
        for index, rollout in enumerate(rollouts):
            step = source.step if rollout.step is None else rollout.step
            said = rollout.said
            entry = Entry(
                source=at,
                place=place,
                at=index,
                step=step,
                group=hash(rollout.group or _prompt(rollout)),
                reward=rollout.reward,
                advantage=rollout.advantage,
                length=sum(len(each.tokens) for each in rollout.messages) or len(said),
                opening=" ".join(TAG.sub(" ", said[: 2 * OPENING]).split())[:OPENING],
            )
            known = (entry, *(each.tokens[0] for each in rollout.messages if each.tokens))
            for name in FIELDS.keys() - self._has:
                if any(getattr(each, FIELDS[name], None) is not None for each in known):
                    self._has.add(name)
            self.entries.append(entry)
            self.steps.setdefault(step, []).append(entry)
        self.version += 1

    def _as_ids(self, ids: Sequence[int]) -> list[str]:
        self._shows_ids |= bool(ids)
        return [f"⟨{each}⟩" for each in ids]

    def _look(self, source: Source) -> None:
        """Look how far a file has grown, or where it is by now."""
        path = source.path
        gone = f"{path} was removed; its rollouts cannot be opened any more."
        try:
            is_there = path.exists()
            if is_there and written(path) == source.written:
                if source.size > source.done:
                    source.note = (
                        f"The last line of {path.name} is cut off; it is read once it is whole."
                    )
                return
            if is_there and (not source.done or source.stands_in(path)):
                source.note = ""
                source.look(written(path))
                return
            if source.note == gone and not is_there:
                return
            others = [each for each in path.parent.iterdir() if each.is_file()]
            moved = source.done and [each for each in others if source.stands_in(each)]
        except OSError as error:
            source.note = f"{path} cannot be read: {error.strerror or error}."
            return
        if moved:
            source.path = moved[0]
        elif is_there:
            self._forget(source)
        else:
            source.note = gone

    def _forget(self, source: Source) -> None:
        """Forget what a file had that was written anew."""
        at = self.sources.index(source)
        anew = type(source)(source.path)
        anew.look(written(source.path))
        anew.note = f"{source.path} was written anew, and is read from its beginning."
        self.sources[at] = anew
        self.entries = [each for each in self.entries if each.source != at]
        self.steps = {}
        for each in self.entries:
            self.steps.setdefault(each.step, []).append(each)
        self.version += 1


def _files(path: str) -> list[Path]:
    """The files that a path names, in their natural order; of a run of ours, its event log alone."""
    named = Path(path).expanduser().resolve()
    if (named / RUN_LOG).exists():
        return [named / RUN_LOG]
    found = [named]
    if not named.exists():
        found = [Path(each) for each in glob.glob(str(named), recursive=True)]
    elif named.is_dir():
        with suppress(OSError):  # a folder in it was removed meanwhile
            found = list(named.rglob("*"))
    return sorted(
        found, key=lambda each: re.sub(r"\d+", lambda number: number[0].zfill(20), f"{each}")
    )


def _prompt(rollout: Rollout) -> str:
    """What was said before the policy spoke."""
    before = takewhile(lambda each: each.role != "assistant", rollout.messages)
    return "\n".join(each.text for each in before)
