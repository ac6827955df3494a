"""What the engine needs of torch's global state, while it computes: environments and users may set it otherwise.

Gradients, default type, default device, inference mode, autocast, and where the engine has chosen them the number of
threads. Whatever others have set is theirs again afterwards.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

_CPU = torch.device("cpu")
_chosen: dict[str, int] = {}
"""``threads``: on how many the engine computes, where it has chosen."""


def set_threads(count: int) -> None:
    """Compute on so many threads from now on, whatever others set."""
    _chosen["threads"] = count
    torch.set_num_threads(count)


def cores() -> int:
    """The number of processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def own_torch() -> Iterator[None]:
    """Torch as the engine needs it, meanwhile; also a decorator."""
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
        if _chosen and torch.are_deterministic_algorithms_enabled():
            warns = torch.is_deterministic_algorithms_warn_only_enabled()
            after.callback(torch.use_deterministic_algorithms, True, warn_only=warns)
            torch.use_deterministic_algorithms(False)
        yield
