"""Entry point: the name of a built-in agent and nothing else opens the playground at once; typer reads the rest.

Typer's validators take about as long as the first frame; this means exactly what it would mean through them.
"""

import gc
import io
import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec

SPINS = "3000"
"""How often a thread of torch looks for the others before it sleeps, in GNU's OpenMP; by default 300,000 times. On a
busy machine such threads spend their time on looking, and a step takes as long as hundreds of steps should."""
QUIET_LIBRARIES = {
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}
"""Variables that libraries read when they are imported, here or by a child: by these they draw no progress bars, do not
warn of forks, and send nothing home."""


def main(args: Sequence[str] | None = None) -> None:
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)  # read when torch is loaded, by a child too
    for name, value in QUIET_LIBRARIES.items():
        os.environ.setdefault(name, value)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # In an older encoding, help has question marks for the signs that it lacks.
        sys.stdout.reconfigure(errors="replace")
    words = list(sys.argv[1:] if args is None else args)
    is_built_in = (
        len(words) == 1 and words[0].isidentifier() and find_spec(f"llamagym_tui.agents.{words[0]}")
    )
    if is_built_in and words[0] != "generic" and sys.stdin.isatty() and sys.stdout.isatty():
        try:
            code = _playground(words[0])
        except KeyboardInterrupt:  # before there was an app that leaves in order
            sys.exit(130)
        except Exception as error:
            from llamagym_tui.cli.command_line import end_failed

            end_failed(error)
        sys.exit(code)
    from llamagym_tui.cli.main import app

    app(words, prog_name="llamagym-tui")


def _playground(agent: str) -> int:
    # Collecting garbage among modules that all stay costs a tenth of the first frame; the app turns it on again.
    gc.disable()
    from llamagym_tui.app.app import open_playground
    from llamagym_tui.setup.run_config import run_config, with_run_dir

    return open_playground(with_run_dir(run_config(agent)))
