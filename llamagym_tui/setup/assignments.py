"""``--set NAME=VALUE``: any setting of a run by its name in `config`, as ``ppo.lr=1e-3``, each checked on its own."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec

from llamagym_tui.config import in_sections, setting_types
from llamagym_tui.errors import UsageError

OPTIONS_OF = {name: f"--{name.replace('_', '-')}" for name in ("env", "model", "run_dir", "resume")}
OPTIONS_OF |= {"agent": "the argument AGENT", "parent": "--from"}
"""Settings that need more than a value, each with the option that sets it."""


OF_EVALUATIONS = ("generation", "max_turns", "max_failures", "parallel_envs")
"""Settings, and sections of them, that an evaluation has apart from its options: nothing of training."""


def evaluation_settings(assignments: Sequence[str]) -> dict[str, Any]:
    """As `settings`, of those that an evaluation has; raises UsageError for others, too."""
    found = settings(assignments)
    for name, value in found.items():
        if name not in OF_EVALUATIONS:
            whole = ", ".join(f"{name}.{key}" for key in value) if isinstance(value, dict) else name
            raise UsageError(
                f"{whole} changes nothing in an evaluation, where --set takes "
                f"{', '.join(OF_EVALUATIONS[1:])} and generation.*; leave it out, or give its option."
            )
    return found


def settings(assignments: Sequence[str]) -> dict[str, Any]:
    """Settings as `RunConfig` takes them, with partly filled sections; if a name is given twice, the later one counts.

    Args:
        assignments: each NAME=VALUE; ``none`` is None, a list is JSON.
    Raises:
        UsageError: a name is unknown, or a value does not fit its setting; the message says which.
    """
    types = setting_types()
    read: dict[str, Any] = {}
    for assignment in assignments:
        name, has_value, text = assignment.partition("=")
        if not has_value:
            raise UsageError(
                f"A setting is given as NAME=VALUE, as in ppo.lr=1e-3, not as {assignment!r}."
            )
        if name in OPTIONS_OF:
            raise UsageError(f"{name} is not set like this; give it by {OPTIONS_OF[name]}.")
        if name not in types:
            raise UsageError(f"There is no setting {name!r}; {_near(name, list(types))}.")
        read[name] = _value(name, text, types[name])
    return in_sections(read, {})


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """The settings of both; where both have one, the one `above` counts, also within a section."""
    both = below | above
    for name, value in above.items():
        if isinstance(value, dict) and name in below:
            both[name] = below[name] | value
    return both


def _value(name: str, text: str, kind: Any) -> Any:
    """A text as a value of a setting's type."""
    try:
        if text.startswith("["):
            return msgspec.convert(msgspec.json.decode(text), kind, strict=False)
        word = "null" if text.lower() == "none" else text
        return msgspec.convert(word, kind, strict=False)
    except ValueError as error:
        if get_origin(kind) is Annotated:
            kind = get_args(kind)[0]
        if get_origin(kind) is Literal:
            wanted = " or ".join(str(value) for value in get_args(kind))
        else:  # msgspec says: Expected `int | null`, got `str`
            wanted = str(error).removeprefix("Expected ").partition(", got")[0]
            wanted = wanted.replace("`", "").replace("null", "none")
        raise UsageError(f"{name} takes {wanted}, not {text!r}.") from error


def _near(name: str, names: list[str]) -> str:
    """The end of a message: the settings that may have been meant."""
    last_part = name.rpartition(".")[2]
    near = [known for known in names if known.rpartition(".")[2] == last_part]
    for known in get_close_matches(name, names, n=4, cutoff=0.5):
        if known not in near:
            near.append(known)
    return f"near it: {', '.join(near)}" if near else "the config.json of every run has them all"
