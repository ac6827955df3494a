"""How the command line is read: its first word, the options of settings, and errors.

The first word is a command or else an agent. Options of settings are made from the fields of `RunConfig`. Every error
becomes one sentence on stderr and an exit code: 1 failed, 2 usage; a traceback only with ``--debug``.
"""

import inspect
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from msgspec.inspect import LiteralType, NoneType, UnionType
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from llamagym_tui.errors import LlamaGymError, UsageError, described, program_ended, user_place
from llamagym_tui.protocol.literal import echo
from llamagym_tui.settings import OPTIONS, RunConfig, flat
from llamagym_tui.settings.typed import assigned, setting_info, typed_value
from llamagym_tui.setup.run_config import env_kwargs, read_prompt

FAILED = 1
USAGE = 2
DEBUG: ContextVar[bool] = ContextVar("debug", default=False)
"""True with ``--debug``, which any command takes: tracebacks and what libraries print are shown."""


class AgentOrCommand(TyperGroup):
    """Commands by name; any other word goes to ``play`` as its agent, or to ``sort`` if an option of that follows."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        word = args[0]
        play = self.get_command(ctx, "play")
        if play is None or self.get_command(ctx, word) is not None or word.startswith("-"):
            return super().resolve_command(ctx, args)
        sort = self.get_command(ctx, "sort")
        if sort is not None and any(arg.startswith(("--actions", "--reward")) for arg in args):
            return "sort", sort, args
        return "AGENT", play, args

    # The other arguments are Typer's own.
    def main(self, args: Sequence[str] | None = None, *places: Any, **options: Any) -> Any:
        words = list(sys.argv[1:] if args is None else args)
        debug = DEBUG.set("--debug" in words)
        words = [word for word in words if word != "--debug"]
        try:
            outcome = super().main(words, *places, **options | {"standalone_mode": False})
        except typer.Abort:
            _end("Interrupted.", FAILED)
        except TyperException as error:
            # Click's sentence, without the usage lines above it and the name of an exception within.
            _end(error.format_message().replace("Value error, ", ""), error.exit_code)
        except Exception as error:
            end_failed(error)
        except SystemExit as error:
            if not user_place(error):  # a completion of the shell's
                raise
            end_failed(program_ended(error))
        finally:
            DEBUG.reset(debug)
        sys.exit(outcome if isinstance(outcome, int) else 0)


class PlayCommand(TyperCommand):
    """The command that an agent's name stands for; its usage line shows no word ``play``."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The words that follow ``llamagym-tui AGENT`` in the usage line."""
        return ["[OPTIONS]"]


def end_failed(error: Exception) -> NoReturn:
    """End the program with a sentence on what failed."""
    if DEBUG.get():
        echo("".join(traceback.format_exception(error)), to=sys.stderr, lines=True)
    if isinstance(error, LlamaGymError):
        _end(str(error), USAGE if isinstance(error, UsageError) else FAILED)
    _end(f"Unexpected {described(error)}; run it again with --debug to see the traceback.", FAILED)


def _end(sentence: str, code: int) -> NoReturn:
    if sentence:  # empty where Click has shown the help instead
        echo(f"llamagym-tui: {sentence}", to=sys.stderr)
    sys.exit(code)


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
Json = Annotated[bool, typer.Option("--json", help="End with one line of JSON on stdout.")]

MODEL = ("model", "env", "system_prompt", "history", "seed", "device", "dtype", "threads")
"""Settings of whatever loads a model and plays."""
EVALUATION = (*MODEL, "n_envs")
"""Settings of an evaluation."""
RUN: tuple[str, ...] = (
    *EVALUATION,
    "ppo.learner",
    "read_depth",
    "wordings",
    "mode",
    "ranks",
    "episodes",
    "minutes",
    "track",
)
RUN += ("run_dir", "resume", "parent")
"""Settings of a run."""
Given = dict[str, Any]
"""Settings that were typed, by their dotted names; agents, models and opponents as they were typed."""


def with_settings(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command an option for each of these settings, and ``--set`` for all others.

    The command gets the settings that were typed, by their dotted names, as `given`.
    """

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
    usual = USUAL[name]
    kind: Any = str | None
    metavar: str | None = _metavar(name)
    if name == "env":
        kind = list[str] | None
        metavar = "NAME=VALUE"
    elif isinstance(usual, bool):
        kind = bool
        metavar = None
    shown = str(usual) if isinstance(usual, int | str) and usual is not False else ""
    option = typer.Option(
        OPTIONS[name].flag, metavar=metavar, help=OPTIONS[name].help, show_default=shown or False
    )
    return inspect.Parameter(
        _python_name(name),
        inspect.Parameter.KEYWORD_ONLY,
        default=False if kind is bool else None,
        annotation=Annotated[kind, option],
    )


def _metavar(name: str) -> str:
    """The word for a setting's value in the help: its choices, if it has some."""
    info = setting_info(name)
    kinds = info.types if isinstance(info, UnionType) else (info,)
    words: list[str] = []
    for kind in kinds:
        if isinstance(kind, LiteralType):
            words += map(str, kind.values)
        elif words and not isinstance(kind, NoneType):
            words.append("NUMBER")
    return "|".join(words) or "VALUE"


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
        if value is True:
            given[name] = True
        elif value and name == "env":
            given[name] = env_kwargs(value)
        elif value and name == "system_prompt":
            given[name] = read_prompt(Path(value))
        elif isinstance(value, str):
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
