"""How much memory is free, and whether a run's weights and what trains them fit into it."""

from collections.abc import Iterator
from pathlib import Path

import psutil
import torch

from llamagym_tui.engine.model.loading import held_as, resolve_device
from llamagym_tui.engine.model.shape import GIB, counted_shape, read_config
from llamagym_tui.engine.model.sources import model_folder
from llamagym_tui.errors import UsageError
from llamagym_tui.settings import RunConfig

TRAINED = 3
"""Elements for each trained weight: its gradient and Adam's two moments."""


def require_memory(config: RunConfig, *, learns: bool) -> None:
    """Raises UsageError if a run's weights, gradients and moments do not fit into the free memory.

    A model whose configuration cannot be read is left to the loading, which explains it.
    """
    device = resolve_device(config.device)
    path = model_folder(config.model)
    try:
        read, is_adapted = read_config(str(path or config.model), local=path is not None)
        shape = counted_shape(read)
    except Exception:
        return
    is_full, size = held_as(config, shape, is_adapted=is_adapted)
    elements = 1 + TRAINED if is_full and learns else 1
    needed = elements * shape.parameters * size
    there = free_memory(device)
    if needed > there:
        raise UsageError(
            f"Model {config.model!r} would take {as_gib(needed)} for its weights and what trains them, and "
            f"{as_gib(there)} are free on {device}; take a smaller model, or an adapter (--set full_finetuning=false)."
        )


def as_gib(amount: float) -> str:
    return f"{amount / GIB:.1f} GiB"


CONTROL_GROUPS = (
    # Where they are mounted, and the files of a group's limit and usage; the page cache within the usage, which the
    # system drops where memory is needed, by its name in `memory.stat`.
    ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    (
        "sys/fs/cgroup/memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        "total_inactive_file",
    ),
)
"""Linux's control groups, which limit the memory of this process: version 2, then version 1."""


def free_memory(device: str) -> int:
    """Bytes that are free where the model goes."""
    if device.startswith("cuda"):
        return torch.cuda.mem_get_info(torch.device(device))[0]
    if device.startswith("mps"):
        return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
    return host_free()


def held_memory(device: str) -> int:
    """Bytes that this process holds already on the host; 0 for another device."""
    if device != "cpu":
        return 0
    return int(psutil.Process().memory_info().rss)


def host_free(root: Path = Path("/")) -> int:
    """Bytes of the host, under the limits of this process's control groups; `root` holds ``proc`` and ``sys``."""
    return min([psutil.virtual_memory().available, *_group_free(root)])


def _group_free(root: Path) -> Iterator[int]:
    """Bytes between usage, page cache left out, and the limit of each limited group of this process."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    paths = {line.split(":", 2)[2].lstrip("/") for line in lines}
    for mounted, limit, usage, cache in CONTROL_GROUPS:
        top = root / mounted
        for path in paths:
            # In a container the path may be the host's, and the group itself be mounted at the top.
            for folder in (top / path, *(top / parent for parent in Path(path).parents)):
                try:
                    most = int((folder / limit).read_text())
                    used = int((folder / usage).read_text())
                    stat_lines = (folder / "memory.stat").read_text().splitlines()
                    stat = dict(line.split() for line in stat_lines)
                except (OSError, ValueError):  # no such group, or no limit
                    continue
                yield max(0, most - used + int(stat.get(cache, 0)))
