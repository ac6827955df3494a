"""`models`: the models known by name, and those of runs."""

import sys

from llamagym_tui.protocol.literal import echo
from llamagym_tui.runs import model_registry, run_store


def list_models() -> None:
    """Print them, each with its size, licence and whether it is on this machine."""
    for entry in model_registry.ENTRIES:
        here = "here" if model_registry.is_here(entry.name) else "not here"
        terms = f"{entry.licence}, gated" if entry.gated else entry.licence
        size = model_registry.size_in_words(entry.parameters)
        echo(f"{entry.name:<36} {size:>6}  {here:<8}  {terms}")
    for run in run_store.list_runs():
        if (run.run_dir / run_store.MODEL_DIR).is_dir():
            echo(f"{run.run_dir}  {run.config.model} trained on {run.config.agent}")
    echo(
        "--model NAME downloads what is not here. Also: any causal language model, by hub id or local path.",
        to=sys.stderr,
    )
