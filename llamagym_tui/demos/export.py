"""Demonstrations in the forms that other programs take: a Parquet table, or pairs of prompt and completion.

Both are made from a file that this program wrote. `datasets`, which TRL depends on, writes Parquet and is imported only
then.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from llamagym_tui.demos import files as demo_files
from llamagym_tui.demos import jsonl
from llamagym_tui.demos.demonstration import Demonstration
from llamagym_tui.errors import DemoFileError

ADVICE = "choose another place with --output"


def to_pairs(source: Path, path: Path) -> int:
    """Write one line of JSON a turn: ``prompt``, the conversation so far, and ``completion``, the reply to it.

    An episode in which a person acted in the model's place gives the person's turns only. Returns how many lines.

    Raises:
        DemoFileError: the source is faulty, or the output cannot be written.
    """
    lines = [msgspec.json.encode(pair) for demo in demo_files.read(source) for pair in _pairs(demo)]
    with demo_files.file_errors(f"{path} cannot be written", ADVICE):
        jsonl.replace_lines(path, lines)
    return len(lines)


def to_parquet(source: Path, path: Path) -> int:
    """Write a Parquet table, one row an episode, with the columns of a line of the source; returns how many rows.

    Raises:
        DemoFileError: the source is faulty, or the output cannot be written.
    """
    import datasets

    datasets.disable_progress_bars()
    rows = [_row(demo) for demo in demo_files.read(source)]
    try:
        with demo_files.file_errors(f"{path} cannot be written", ADVICE):
            datasets.Dataset.from_list(rows).to_parquet(str(path))
    except (ValueError, TypeError) as error:  # pyarrow's own are of these kinds
        raise DemoFileError(f"The episodes of {source} have no common table ({error}); export pairs.") from error
    return len(rows)


def _pairs(demo: Demonstration) -> Iterator[dict[str, Any]]:
    for index, message in enumerate(demo.lesson):
        if message["role"] == "assistant" and message.get("weight") != 0:
            yield {"prompt": demo.messages[:index], "completion": [message]}


def _row(demo: Demonstration) -> dict[str, Any]:
    """Replaced replies become a list, admissible actions are there, so that every row has the same columns."""
    replaced = [{"turn": turn, "reply": reply} for turn, reply in sorted(demo.corrected.items())]
    return {**msgspec.to_builtins(demo), "replaced_replies": replaced, "admissible": demo.admissible or []}
