"""Reads the first word of the command line, a command or else an agent, and ends the program.

Every error becomes one sentence on stderr and an exit code: 1 failed, 2 usage; a traceback only with ``--debug``.
"""

import sys
import traceback
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from llamagym_tui.errors import LlamaGymError, UsageError, described, program_ended, user_place
from llamagym_tui.protocol.literal import echo
from llamagym_tui.setup import catalog

FAILED = 1
USAGE = 2


class AgentOrCommand(TyperGroup):
    """Commands by name; any other word goes to the command ``play`` as its agent."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        word = args[0]
        play = self.get_command(ctx, "play")
        if play is None or self.get_command(ctx, word) is not None or word.startswith("-"):
            return super().resolve_command(ctx, args)
        _refuse_misspelt(
            word, [name for name, command in self.commands.items() if not command.hidden]
        )
        return "AGENT", play, args

    # The other arguments are Typer's own.
    def main(self, args: Sequence[str] | None = None, *places: Any, **options: Any) -> Any:
        words = list(sys.argv[1:] if args is None else args)
        try:
            outcome = super().main(words, *places, **options | {"standalone_mode": False})
        except typer.Abort:
            _end("Interrupted.", FAILED)
        except TyperException as error:
            # Click's sentence, without the usage lines above it and the name of an exception within.
            _end(error.format_message().replace("Value error, ", ""), error.exit_code)
        except Exception as error:
            if "--debug" in words:
                echo(traceback.format_exc(), to=sys.stderr, lines=True)
            end_failed(error)
        except SystemExit as error:
            if not user_place(error):  # a completion of the shell's
                raise
            end_failed(program_ended(error))
        sys.exit(outcome if isinstance(outcome, int) else 0)


class PlayCommand(TyperCommand):
    """The command that an agent's name stands for; its usage line shows no word ``play``."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The words that follow ``llamagym-tui AGENT`` in the usage line."""
        return ["[OPTIONS]"]


def _refuse_misspelt(word: str, commands: Sequence[str]) -> None:
    """Refuse a word that is close to a command and names no agent: it was hardly meant as an agent."""
    nearest = get_close_matches(word, commands, n=1, cutoff=0.7)
    if nearest and word not in catalog.built_in() and catalog.agent_file(word) is None:
        raise UsageError(f"There is no command or agent {word!r}; did you mean {nearest[0]}?")


def end_failed(error: Exception) -> NoReturn:
    """End the program with a sentence on what failed."""
    if isinstance(error, LlamaGymError):
        _end(str(error), USAGE if isinstance(error, UsageError) else FAILED)
    _end(f"Unexpected {described(error)}; run it again with --debug to see the traceback.", FAILED)


def _end(sentence: str, code: int) -> NoReturn:
    if sentence:  # empty where Click has shown the help instead
        echo(f"llamagym-tui: {sentence}", to=sys.stderr)
    sys.exit(code)
