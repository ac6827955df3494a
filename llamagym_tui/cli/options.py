"""Options of the command line. Those of settings are made from the fields of `RunConfig`: one table, no second list.

A command that is decorated with `takes` gets the settings that were typed, by their dotted names, as `given`.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec.inspect import (
    FloatType,
    IntType,
    LiteralType,
    Metadata,
    NoneType,
    Type,
    UnionType,
)

from llamagym_tui.errors import UsageError
from llamagym_tui.settings import OPTIONS, RunConfig, flat
from llamagym_tui.settings.typed import assigned, setting_info, typed_value
from llamagym_tui.setup.run_config import env_kwargs, read_prompt

USUAL = flat(RunConfig(agent="", run_dir=""))
"""The default of each setting."""

Agent = Annotated[
    str, typer.Argument(metavar="AGENT", help="Agent name, path.py[:Class] or Gymnasium id.")
]
AgentOrNone = Annotated[
    str | None,
    typer.Argument(
        metavar="AGENT",
        help="Agent name, path.py[:Class] or Gymnasium id; none with --resume or --from.",
    ),
]
Run = Annotated[
    str | None,
    typer.Argument(metavar="RUN", help="Folder of a run, or its name. Not given: the latest run."),
]
Greedy = Annotated[
    bool, typer.Option("--greedy/--sampled", help="Most likely replies, or replies as in training.")
]
BeforeAndAfter = Annotated[
    int, typer.Option(min=0, help="Greedy episodes before and after; 0 skips them.")
]
Json = Annotated[bool, typer.Option("--json", help="End with one line of JSON on stdout.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
TrustAgent = Annotated[
    bool,
    typer.Option(
        "--trust-agent", help="With --resume or --from: execute the agent file that the run names."
    ),
]

MODEL = ("model", "env", "system_prompt", "history", "seed", "device", "dtype", "threads")
"""Settings of whatever loads a model and plays."""
EVALUATION = (*MODEL, "n_envs")
"""Settings of an evaluation."""
RUN: tuple[str, ...] = (*EVALUATION, "ppo.learner", "mode", "ranks", "episodes", "minutes", "track")
RUN += ("run_dir", "resume", "parent")
"""Settings of a run."""
Given = dict[str, Any]
"""Settings that were typed, by their dotted names; agents, models and opponents as they were typed."""


def with_settings(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command an option for each of these settings, and ``--set`` for all others."""

    def decorated(command: Callable[..., Any]) -> Callable[..., Any]:
        own = [
            parameter
            for parameter in inspect.signature(command).parameters.values()
            if parameter.name != "given"
        ]

        parameters = {_python_name(name): _parameter(name) for name in names}
        parameters["assignments"] = _SET

        @wraps(command)
        def called(**values: Any) -> Any:
            typed = {name: values.pop(name) for name in parameters}
            return command(**values, given=read_settings(typed))

        called.__signature__ = inspect.Signature([*own, *parameters.values()])  # type: ignore[attr-defined]
        return called

    return decorated


def _python_name(name: str) -> str:
    return name.replace(".", "_")


def _parameter(name: str) -> inspect.Parameter:
    """The parameter of a command for a setting; everything but a flag is read as text, as after ``--set``."""
    kind: Any = str | None
    default: Any = None
    metavar: str | None = _metavar(setting_info(name))
    usual = USUAL[name]
    shown: bool | str = False if usual in (None, "", {}) else str(usual)
    if name == "env":
        kind = list[str] | None
        metavar = "NAME=VALUE"
    elif isinstance(usual, bool):
        kind = bool
        default = False
        metavar = None
        shown = False
    option = typer.Option(
        OPTIONS[name].flag, metavar=metavar, help=OPTIONS[name].help, show_default=shown
    )
    return inspect.Parameter(
        _python_name(name),
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, option],
    )


def _metavar(kind: Type) -> str:
    """The word for a setting's value in the help."""
    match kind:
        case Metadata(type=inner):
            return _metavar(inner)
        case LiteralType(values=values):
            return "|".join(map(str, values))
        case UnionType(types=types):
            return "|".join(_metavar(each) for each in types if not isinstance(each, NoneType))
        case IntType():
            return "N"
        case FloatType():
            return "NUMBER"
        case _:
            return "TEXT"


_SET = inspect.Parameter(
    "assignments",
    inspect.Parameter.KEYWORD_ONLY,
    default=None,
    annotation=Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Any other setting, as --set ppo.lr=1e-3; may be repeated.",
        ),
    ],
)


def read_settings(typed: Mapping[str, Any]) -> Given:
    """The settings that were given, an option before a ``--set`` of the same name.

    Args:
        typed: by the names of the command's parameters; None or False for those that were not given.
    """
    given = assigned(typed["assignments"] or ())
    for name in USUAL:
        value = typed.get(_python_name(name))
        if value is None or value is False or value == []:
            continue
        if name == "env":
            given[name] = env_kwargs(value)
        elif name == "system_prompt":
            given[name] = read_prompt(Path(value))
        elif value is True:
            given[name] = True
        else:
            given[name] = typed_value(name, value, OPTIONS[name].flag)
    return given


def require_used(given: Given, unused: Sequence[str]) -> None:
    """Raises UsageError: settings of a warm start, `unused`, that the command does not make."""
    for name in given:
        section = name.partition(".")[0]
        if section in unused and "." in name:
            makes = (
                "--sft-warm-start, or the command sft" if section == "sft" else "the command dpo"
            )
            raise UsageError(f"{name} is about a training that is not made here but by {makes}.")
