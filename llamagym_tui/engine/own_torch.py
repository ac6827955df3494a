"""Torch's global state while the engine computes: environments and users may set it otherwise.

It covers gradients, default type, default device, inference mode, autocast, and the number of threads where the engine
has chosen it. Afterwards the settings of others hold again.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

_CPU = torch.device("cpu")
_chosen: dict[str, int] = {}
"""``threads``: on how many the engine computes, where it has chosen."""


def set_threads(count: int) -> None:
    """Compute on a number of threads from now on, whatever others set."""
    _chosen["threads"] = count
    torch.set_num_threads(count)


def cores() -> int:
    """The number of processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def own_torch() -> Iterator[None]:
    """Torch's settings as the engine needs them; also a decorator."""
    with ExitStack() as after:
        if torch.is_inference_mode_enabled():
            after.enter_context(torch.inference_mode(mode=False))
        if not torch.is_grad_enabled():
            after.enter_context(torch.enable_grad())
        if (dtype := torch.get_default_dtype()) != torch.float32:
            after.callback(torch.set_default_dtype, dtype)
            torch.set_default_dtype(torch.float32)
        if (device := torch.get_default_device()) != _CPU:
            after.callback(torch.set_default_device, device)
            torch.set_default_device(None)
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                after.enter_context(torch.autocast(kind, enabled=False))
        threads = torch.get_num_threads()
        if threads != _chosen.get("threads", threads):
            after.callback(torch.set_num_threads, threads)
            torch.set_num_threads(_chosen["threads"])
        yield
