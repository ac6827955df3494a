"""Memory that this process may still take: what the machine has free, or what its container allows, if that is less.

Page cache counts as free, because the system gives it back. None where the system does not report it.
"""

import ctypes
import os
import sys
from pathlib import Path

import torch

KIB = 1024


def free_memory(device: str) -> int | None:
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
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return peak_memory()


def peak_memory() -> int:
    import resource  # not on Windows

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else KIB)


def return_freed_memory() -> None:
    """Give back to the system what the C library holds of freed tensors; where it is not GNU's, nothing happens.

    Their sizes differ from batch to batch, and what is freed between others would pile up by hundreds of MiB an hour.
    """
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)):
        trim(0)


def host_free(root: Path = Path("/")) -> int | None:
    """Bytes of the host, under the limits of this process's control groups; `root` holds ``proc`` and ``sys``."""
    known = [amount for amount in (_machine_free(root), *_group_free(root)) if amount is not None]
    return min(known, default=None)


def _machine_free(root: Path) -> int | None:
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
        (line,) = (line for line in lines if line.startswith("MemAvailable:"))
        return int(line.split()[1]) * KIB
    except (OSError, ValueError):
        try:
            name = "SC_AVPHYS_PAGES" if "SC_AVPHYS_PAGES" in os.sysconf_names else "SC_PHYS_PAGES"
            return os.sysconf(name) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError, AttributeError):  # the last on Windows
            return None


def _group_free(root: Path) -> list[int]:
    """Bytes left in each limited control group of this process, version 2 or 1."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        mounted, limit, usage, cache = root / "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"
        if "memory" in controllers.split(","):
            mounted, limit, usage = mounted / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
            cache = "total_inactive_file"
        elif controllers:
            continue
        inner = mounted / path.lstrip("/")
        # In a container the path may be the host's, and the group itself be mounted at the top.
        for folder in [inner, *inner.parents]:
            if folder == mounted.parent:
                break
            left = _left(folder, limit, usage, cache)
            found += [left] if left is not None else []
    return found


def _left(folder: Path, limit: str, usage: str, cache: str) -> int | None:
    """Bytes between usage, page cache left out, and the limit of one group; None: no limit."""
    try:
        most = int((folder / limit).read_text())
        used = int((folder / usage).read_text())
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return None
    return max(0, most - used + int(stat.get(cache, 0)))
