"""A person's judgements on the items of a text file: the items, a line of JSON for each judgement, and what was sorted.

A judgement is on the disk before the next item is shown. An existing file is only added to, never replaced.
"""

import os
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from llamagym_tui.demos.files import add_to_end
from llamagym_tui.errors import DemoFileError, UsageError
from llamagym_tui.game.chat import assistant, opening, user
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.user_files import (
    MOST_WHOLE,
    file_text,
    growing_file,
    replace_file,
    torn_line_start,
)

ACTION_KEYS = "123456789abc"
"""The keys of the actions, in their order; there are no more actions."""
Verdict = Literal["right", "wrong", "label", "undone"]


class JudgedItem(Struct, frozen=True, kw_only=True):
    """A line of the file of judgements."""

    item: str
    shown: str
    """The action that the model chose."""
    certainty: float
    """Of the model, from 0 to 1."""
    judgement: Verdict
    """``label``: the person named the right action. ``undone``: the last judgement on the item does not count."""
    label: str | None = None
    """The right action, where it is known."""


class SortedItem(Struct, frozen=True):
    """An item with its action."""

    item: str
    action: str
    certainty: float
    is_judged: bool


def own_prompt(actions: Sequence[str]) -> str:
    """The system prompt, unless the person has another."""
    names = f"{', '.join(actions[:-1])} or {actions[-1]}"
    return f"You sort a list of items. Name the right one for each item: {names}."


def shown_to_model(item: str) -> str:
    """The user message for an item."""
    end = "" if item.endswith((".", "!", "?")) else "."
    return f"The next item is: {item}{end}"


def actions_of(names: str) -> list[str]:
    """The actions of a list with commas between; raises UsageError unless there are two to twelve."""
    actions = list(dict.fromkeys(one_line(name) for name in names.split(",") if name.strip()))
    if not 2 <= len(actions) <= len(ACTION_KEYS):
        raise UsageError(
            f"--actions names {len(actions)} different action(s), and sorting takes 2 to {len(ACTION_KEYS)}: "
            "--actions keep,later,bin."
        )
    return actions


def read_items(path: Path) -> tuple[list[str], int]:
    """The distinct lines of a text file that are not blank, and the number of lines that repeat one.

    Raises:
        UsageError: the file cannot be read, is no text, or has fewer than two items.
    """
    try:
        text = file_text(path, most=MOST_WHOLE)
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no text in UTF-8: a line an item is needed.") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from error
    if "\0" in text:
        raise UsageError(f"{path} is a binary file: a text with a line an item is needed.")
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    items = list(dict.fromkeys(lines))
    if len(items) < 2:
        raise UsageError(f"{path} has {len(items)} item(s): at least two lines are needed.")
    return items, len(lines) - len(items)


def judgements_path(items: Path) -> Path:
    return items.with_name(f"{items.stem}.judgements.jsonl")


def read_judgements(
    path: Path, items: Iterable[str], actions: Sequence[str]
) -> tuple[list[JudgedItem], str]:
    """The judgements that hold, in order, and a sentence on the lines that are left out; empty if none is.

    Raises:
        UsageError: the file cannot be read.
    """
    try:
        text = file_text(path, most=MOST_WHOLE)
    except FileNotFoundError:
        return [], ""
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read ({error}): move it away.") from error
    known = set(items)
    found: dict[str, JudgedItem] = {}
    torn = 0
    strange = 0
    for line in filter(str.strip, text.split("\n")):
        try:
            judged = msgspec.json.decode(line, type=JudgedItem)
        except msgspec.DecodeError:
            torn += 1
            continue
        found.pop(judged.item, None)
        if judged.item not in known or not {judged.shown, judged.label or judged.shown} <= set(
            actions
        ):
            strange += 1
        elif judged.judgement != "undone":
            found[judged.item] = judged
    left_out = []
    if torn:
        left_out.append(f"{torn} incomplete line(s) of {path.name} are skipped.")
    if strange:
        left_out.append(f"{strange} judgement(s) on other items or actions are left out.")
    return list(found.values()), " ".join(left_out)


def append_judgement(path: Path, judged: JudgedItem) -> None:
    """Add a line, down to the disk; raises DemoFileError if that is not possible."""
    line = msgspec.json.encode(judged) + b"\n"
    try:
        with growing_file(path, follow=True) as file:
            if torn_line_start(file) < file.seek(0, os.SEEK_END):  # the last line was cut off
                line = b"\n" + line
            add_to_end(file, line)
    except OSError as error:
        raise DemoFileError(f"The judgement was not saved to {path}: {error}.") from error


def write_results(
    items: Path, prompt: str, rows: Iterable[SortedItem], labels: Iterable[tuple[str, str]]
) -> list[Path]:
    """Write a table of items beside their file, the least certain first, and labelled ones as conversations to train
    on; the paths, which are free ones.

    Args:
        items: their file.
        prompt: the system prompt.
        rows: of the table.
        labels: items with their right actions, where these are known.
    Raises:
        DemoFileError: a file cannot be written.
    """
    ordered = sorted(rows, key=lambda row: (row.is_judged, row.certainty))
    lines = ["item\taction\tcertainty\tjudged"]
    for row in ordered:
        cells = (row.item.replace("\t", " "), row.action, f"{row.certainty:.2f}")
        lines.append("\t".join((*cells, "yes" if row.is_judged else "no")))
    written = [_written(items.with_name("sorted.tsv"), "\n".join(lines))]
    conversations = [
        [*opening(prompt), user(shown_to_model(item)), assistant(action)] for item, action in labels
    ]
    if conversations:
        found = [msgspec.json.encode({"messages": each}).decode() for each in conversations]
        written.append(_written(items.with_name(f"{items.stem}.sft.jsonl"), "\n".join(found)))
    return written


def _written(path: Path, text: str) -> Path:
    """The path that a text was written to: the one asked for, or, where a file is there, one with a number."""
    free = path
    for number in count(2):
        if not free.exists():
            break
        free = path.with_name(f"{path.stem}-{number}{path.suffix}")
    try:
        replace_file(free, f"{text}\n".encode())
    except OSError as error:
        raise DemoFileError(f"{free} was not written: {error}.") from error
    return free
