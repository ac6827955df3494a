"""Memory that this process may still take: what the machine has free, or what its container allows, if that is less.

Page cache counts as free, because the system gives it back.
"""

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import torch

GROUPS = (
    ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""Of control groups, version 2 and 1: where they are mounted, their limit, usage, and the page cache in that."""


def free_memory(device: str) -> int:
    """Bytes that are free where the model goes."""
    if device.startswith("cuda"):
        return torch.cuda.mem_get_info(torch.device(device))[0]
    if device.startswith("mps"):
        return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
    return host_free()


def held_memory(device: str) -> int:
    """Bytes that this process holds already on the host; 0 for another device."""
    return int(psutil.Process().memory_info().rss) if device == "cpu" else 0


def return_freed_memory() -> None:
    """Give back to the system what the C library holds of freed tensors; where it is not GNU's, nothing happens.

    Their sizes differ from batch to batch, and what is freed between others would pile up by hundreds of MiB an hour.
    """
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)):
        trim(0)


def host_free(root: Path = Path("/")) -> int:
    """Bytes of the host, under the limits of this process's control groups; `root` holds ``proc`` and ``sys``."""
    return min([psutil.virtual_memory().available, *_group_free(root)])


def _group_free(root: Path) -> Iterator[int]:
    """Bytes between usage, page cache left out, and the limit of each limited group of this process."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for mounted, limit, usage, cache in GROUPS:
        for path in {line.split(":", 2)[2].lstrip("/") for line in lines}:
            # In a container the path may be the host's, and the group itself be mounted at the top.
            for folder in (root / mounted / path, *(root / mounted / parent for parent in Path(path).parents)):
                try:
                    most, used = (int((folder / name).read_text()) for name in (limit, usage))
                    stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
                except (OSError, ValueError):  # no such group, or no limit
                    continue
                yield max(0, most - used + int(stat.get(cache, 0)))
