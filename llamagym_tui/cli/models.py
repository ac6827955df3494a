"""`models`: the models known by name, with what of them fits in this machine's memory and what each would download.

What fits is by the weights alone and what is kept of each that is trained, so at most; what conversations take besides,
the preflight estimates before a run.
"""

import sys

from llamagym_tui import model_registry, run_store
from llamagym_tui.engine.memory import as_gib, host_free
from llamagym_tui.model_registry import ModelEntry
from llamagym_tui.protocol.literal import echo

HALF = "adapter in bfloat16"
BYTES = {"all weights": 20, "adapter": 4, HALF: 2}
"""Bytes for each weight of a model by what is trained: the weight in float32 or bfloat16, and of each that is trained
its gradient, Adam's two moments and what it was before the last step. An adapter's own are few, and an evaluation needs
what an adapter does."""


def list_models() -> None:
    """Print them, and the models of runs."""
    there = host_free()
    for entry in model_registry.ENTRIES:
        echo(line(entry, there))
    for run in run_store.list_runs():
        if (run.run_dir / run_store.MODEL_DIR).is_dir():
            echo(f"{run.run_dir}  {run.config.model} trained on {run.config.agent}")
    echo(
        f"What fits is by the weights alone, in the {as_gib(there)} that are free; an evaluation needs what an adapter "
        "does. --model NAME gets what is not here. Also: any causal language model, by hub id or local path.",
        to=sys.stderr,
    )


def line(entry: ModelEntry, there: int) -> str:
    """What is told of a model where so many bytes are free."""
    here = "here" if model_registry.is_here(entry.name) else "not here"
    terms = f"{entry.licence}, gated" if entry.gated else entry.licence
    size = model_registry.size_in_words(entry.parameters)
    fits = ", ".join(fitting(entry, there)) or "too large"
    words = f"{entry.name:<36} {size:>6}  {here:<8}  {terms:<16}  {fits}"
    download = model_registry.download_of(entry.name)
    return words if download is None else f"{words}; {download.source}"


def fitting(entry: ModelEntry, there: int) -> list[str]:
    """What of a model may be trained in so many bytes; half precision is named where it alone fits."""
    fits = [what for what, size in BYTES.items() if size * entry.parameters <= there]
    return [what for what in fits if what != HALF or len(fits) == 1]
