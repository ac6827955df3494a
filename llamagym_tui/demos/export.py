"""Demonstrations in forms for other programs: a Parquet table, or lines of JSON as TRL's trainers read them."""

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import msgspec

from llamagym_tui.demos import files as demo_files
from llamagym_tui.demos import jsonl
from llamagym_tui.demos.demonstration import Demonstration
from llamagym_tui.errors import DemoFileError
from llamagym_tui.game.chat import assistant
from llamagym_tui.user_files import replace_file

Form = Literal["pairs", "prompts", "dpo", "kto"]
"""What a line of JSON holds; see `to_lines`."""
ADVICE = "choose another place with --output"


def to_lines(source: Path, path: Path, form: Form) -> int:
    """Write lines of JSON, one for each reply; returns how many.

    Each line has a ``prompt``, the conversation up to the reply. If a person acted in the model's place, only the
    person's turns are written.

    Args:
        form: ``pairs`` adds the ``completion``, ``prompts`` nothing, ``kto`` a completion and its ``label``, which is
            false for a reply that a person has replaced. ``dpo`` has only replies that a person has replaced: the
            person's is ``chosen``, the model's is ``rejected``; a source without any is an error.
    """
    lines: list[bytes] = []
    for demo in demo_files.read(source):
        lines.extend(msgspec.json.encode(row) for row in _rows(demo, form))
    if not lines:
        raise DemoFileError(
            f"{source} has no replies that a person replaced; correct some with w, at the wheel."
        )
    with demo_files.file_errors(f"{path} cannot be written", ADVICE):
        jsonl.replace_lines(path, lines)
    return len(lines)


def to_parquet(source: Path, path: Path) -> int:
    """Write a Parquet table with a row for each episode and the fields of a line as columns; returns how many rows."""
    import datasets

    datasets.disable_progress_bars()
    rows = [_row(demo) for demo in demo_files.read(source)]
    table = BytesIO()
    try:
        datasets.Dataset.from_list(rows).to_parquet(table)
    except (ValueError, TypeError) as error:  # pyarrow's own errors are of these kinds
        raise DemoFileError(
            f"The episodes of {source} do not fit into one table ({error}); export them with --to pairs."
        ) from error
    with demo_files.file_errors(f"{path} cannot be written", ADVICE):
        replace_file(path, table.getvalue())
    return len(rows)


def _rows(demo: Demonstration, form: Form) -> Iterator[dict[str, Any]]:
    """What is written for the replies of an episode."""
    lesson = demo.lesson
    replies = [index for index, message in enumerate(lesson) if message["role"] == "assistant"]
    for turn, index in enumerate(replies):
        message = lesson[index]
        if message.get("weight") == 0:  # the model's reply next to a person's turns
            continue
        prompt = demo.messages[:index]
        # The model's own reply, where a person acted in its place and replied something else.
        models_reply = demo.corrected.get(turn, message["content"])
        is_replaced = models_reply != message["content"]
        match form:
            case "prompts":
                yield {"prompt": prompt}
            case "pairs":
                yield {"prompt": prompt, "completion": [message]}
            case "kto":
                yield {"prompt": prompt, "completion": [message], "label": True}
                if is_replaced:
                    rejected = [assistant(models_reply)]
                    yield {"prompt": prompt, "completion": rejected, "label": False}
            case "dpo":
                if is_replaced:
                    rejected = [assistant(models_reply)]
                    yield {"prompt": prompt, "chosen": [message], "rejected": rejected}


def _row(demo: Demonstration) -> dict[str, Any]:
    """An episode as a row of a table; every row has the same columns, those for corrections and admissible actions
    too."""
    replaced = [{"turn": turn, "reply": reply} for turn, reply in sorted(demo.corrected.items())]
    return {
        **msgspec.to_builtins(demo),
        "replaced_replies": replaced,
        "admissible": demo.admissible or [],
    }
