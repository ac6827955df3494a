"""`view` without a screen: the figures of steps, or what a search finds, as lines of text or JSON."""

import contextlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from llamagym_tui.errors import UsageError
from llamagym_tui.protocol.literal import echo, echo_json
from llamagym_tui.rollouts.index import Rollouts
from llamagym_tui.rollouts.search import Pattern, search
from llamagym_tui.runs.model_registry import BUNDLED, folder_of_known, full_name
from llamagym_tui.user_files import file_content

TOKENIZER = "tokenizer.json"


def texts_of(model: str) -> Callable[[Sequence[int]], list[str]]:
    """The texts of token ids, by the tokenizer of a model that is on this machine. Raises UsageError: it is not."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError
    from tokenizers import Tokenizer

    folder = folder_of_known("bundled_model") if model == BUNDLED else Path(model).expanduser()
    assert folder is not None
    paths = [folder / TOKENIZER, folder / "model" / TOKENIZER]
    with contextlib.suppress(HFValidationError):  # no hub has such a name
        paths.append(Path(str(try_to_load_from_cache(full_name(model), TOKENIZER))))
    path = next((each for each in paths if each.is_file()), None)
    if path is None:
        raise UsageError(
            f"Model {model!r} has no {TOKENIZER} on this machine: name a folder that has one."
        )
    tokenizer = Tokenizer.from_str(file_content(path).decode())
    return lambda ids: [tokenizer.decode([each], skip_special_tokens=False) for each in ids]


def print_rollouts(rollouts: Rollouts, *, words: str, as_json: bool) -> None:
    """Print a line for each step, or for each rollout that has some words."""
    while rollouts.read_on():
        pass
    lines = []
    if words:
        found = search(rollouts, rollouts.entries, Pattern(words))
        lines = [
            {"step": each.entry.step, "reward": each.entry.reward, "found": each.words}
            for each in found
            if each is not None
        ]
    elif rollouts.entries:
        steps = sorted(rollouts.steps.items(), key=lambda each: (each[0] is not None, each[0] or 0))
        lines = [rollouts.figures(step)._asdict() for step, _ in steps]
    for line in lines:
        if as_json:
            echo_json(line)
        else:
            echo("  ".join(f"{name} {value}" for name, value in line.items() if value is not None))
    for note in rollouts.notes:
        echo(note, to=sys.stderr)
