"""Free memory, and a check that a run's weights, gradients and moments fit into it."""

from pathlib import Path

import psutil
import torch

from llamagym_tui.engine.model.loading import is_fully_trained, resolve_device, weights_type
from llamagym_tui.engine.model.shape import GIB, base_of, parameters_of, read_config
from llamagym_tui.engine.model.sources import model_folder
from llamagym_tui.errors import UsageError
from llamagym_tui.runs import model_registry
from llamagym_tui.runs.model_registry import ModelEntry
from llamagym_tui.settings import RunConfig

LIMIT = Path("/sys/fs/cgroup/memory.max")
TRAINED = 3
"""Elements for each trained weight: its gradient and Adam's two moments."""


def require_memory(config: RunConfig, *, learns: bool) -> None:
    """Raises UsageError if a run's weights, gradients and moments do not fit into the free memory.

    A model whose configuration cannot be read is left to the loading, which explains it.
    """
    device = resolve_device(config.device)
    try:
        source = str(model_folder(config.model) or config.model)
        parameters = parameters_of(read_config(source))
        is_adapted = base_of(Path(source)) is not None
    except Exception:
        return
    entry = model_registry.find(config.model) or ModelEntry(config.model, short=config.model)
    held = weights_type(entry, config.dtype, config.full_finetuning)
    is_full = is_fully_trained(entry, config.full_finetuning, held, parameters)
    trains_all = learns and is_full and not is_adapted
    needed = parameters * held.itemsize * (1 + TRAINED if trains_all else 1)
    there = free_memory(device)
    if needed > there:
        raise UsageError(
            f"Model {config.model!r} would take {as_gib(needed)} for its weights and their training, and "
            f"{as_gib(there)} are free on {device}; take a smaller model, or an adapter (--set full_finetuning=false)."
        )


def as_gib(amount: float) -> str:
    return f"{amount / GIB:.1f} GiB"


def free_memory(device: str) -> int:
    """Bytes that are free where the model goes."""
    if device.startswith("cuda"):
        return torch.cuda.mem_get_info(torch.device(device))[0]
    if device.startswith("mps"):
        return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
    return host_free(LIMIT)


def host_free(limit: Path) -> int:
    """Bytes of the host that are free, at most the limit in a Linux control group's file, as containers have one."""
    available: int = psutil.virtual_memory().available
    try:
        return min(available, int(limit.read_text()))
    except (OSError, ValueError):  # no such group, or no limit
        return available
