"""Demonstrations in the forms that others take: a Parquet table, or lines of JSON as TRL's trainers read them."""

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
ADVICE = "choose another place with --output"


def to_lines(source: Path, path: Path, form: Form) -> int:
    """Write lines of JSON in a form; returns how many.

    All have a ``prompt``, the conversation so far, and of an episode in which a person acted in the model's place only
    the person's turns.

    Args:
        form: ``pairs`` adds the ``completion``, ``prompts`` nothing, ``kto`` a completion and its ``label``, which is
            false for a reply that a person has replaced. ``dpo`` has the replaced replies alone: the person's is
            ``chosen``, the model's ``rejected``; a source that has none is an error.
    """
    rows = (row for demo in demo_files.read(source) for row in _rows(demo, form))
    if not (lines := [msgspec.json.encode(row) for row in rows]):
        raise DemoFileError(
            f"{source} has no replies that a person replaced; correct some with w, at the wheel."
        )
    with demo_files.file_errors(f"{path} cannot be written", ADVICE):
        jsonl.replace_lines(path, lines)
    return len(lines)


def to_parquet(source: Path, path: Path) -> int:
    """Write a Parquet table, one row an episode, with the columns of a line of the source; returns how many rows."""
    import datasets

    datasets.disable_progress_bars()
    rows, table = [_row(demo) for demo in demo_files.read(source)], BytesIO()
    try:
        datasets.Dataset.from_list(rows).to_parquet(table)
    except (ValueError, TypeError) as error:  # pyarrow's own are of these kinds
        raise DemoFileError(
            f"The episodes of {source} have no common table ({error}); export pairs."
        ) from error
    with demo_files.file_errors(f"{path} cannot be written", ADVICE):
        replace_file(path, table.getvalue())
    return len(rows)


def _rows(demo: Demonstration, form: Form) -> Iterator[dict[str, Any]]:
    replies = [index for index, message in enumerate(demo.lesson) if message["role"] == "assistant"]
    for turn, index in enumerate(replies):
        message, prompt = demo.lesson[index], {"prompt": demo.messages[:index]}
        own = demo.corrected.get(
            turn, message["content"]
        )  # the model's, where a person acted in its place
        replaced = [assistant(own)] if own != message["content"] else []
        match form:
            case _ if message.get("weight") == 0:
                pass
            case "prompts":
                yield prompt
            case "pairs":
                yield {**prompt, "completion": [message]}
            case "kto":
                yield {**prompt, "completion": [message], "label": True}
                if replaced:
                    yield {**prompt, "completion": replaced, "label": False}
            case "dpo" if replaced:
                yield {**prompt, "chosen": [message], "rejected": replaced}


def _row(demo: Demonstration) -> dict[str, Any]:
    """Replaced replies become a list, admissible actions are there, so that every row has the same columns."""
    replaced = [{"turn": turn, "reply": reply} for turn, reply in sorted(demo.corrected.items())]
    return {
        **msgspec.to_builtins(demo),
        "replaced_replies": replaced,
        "admissible": demo.admissible or [],
    }
