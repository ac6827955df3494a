"""Several processes, ranks, that train one policy, and what they exchange, by torch.distributed.

Rank 0 leads: the others await what it decides, and do it with it. A process alone is rank 0 of 1, and calls nothing
of torch.distributed. When a rank has ended, every exchange of the others raises `RankLost`.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import distributed, nn

from llamagym_tui.errors import RankLost

T = TypeVar("T")
PATIENCE = timedelta(days=20)
"""The longest wait for rank 0 between two steps: a person may have paused the run."""
GLOO = "gloo"
"""The backend, whose name is in the text of its errors."""
TIMEOUT = timedelta(minutes=15)
"""The longest wait of ranks that are all at work for one another."""


class Ranks:
    """This process among those that train together; alone unless it is given a size."""

    def __init__(
        self,
        rank: int = 0,
        size: int = 1,
        store: Any = None,
        why_lost: Callable[[], str] = str,
        backend: str = GLOO,
    ) -> None:
        """Meet the others, at torchrun's address or in a `store`; `why_lost` names a rank that has ended, if it can.

        Raises:
            RankLost: they have not come.
        """
        self.rank = rank
        """This process's place among the others; 0 leads."""
        self.size = size
        """The number of processes."""
        self._why_lost = why_lost
        self._backend = backend
        self.share: Callable[[], None] = lambda: None
        """Lets every rank have the weights of rank 0 and what its learner has become; all ranks call it."""
        self._exchange(
            lambda: distributed.init_process_group(
                backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT
            )
        )
        self._patient = self._exchange(
            lambda: distributed.new_group(backend=GLOO, timeout=PATIENCE)
        )

    def part(self, whole: int) -> int:
        """This rank's share of a number."""
        each, left = divmod(whole, self.size)
        return each + 1 if self.rank < left else each

    def first(self, value: Any = None, *, patient: bool = False) -> Any:
        """The value that rank 0 has, `patient` where the others may have to wait for it for days."""
        box = [value]
        group = self._patient if patient else None
        self._exchange(lambda: distributed.broadcast_object_list(box, src=0, group=group))
        return box[0]

    def gather(self, value: T) -> list[T]:
        """The value of each rank, in their order."""
        found = [value] * self.size
        self._exchange(lambda: distributed.all_gather_object(found, value))
        return found

    @torch.no_grad()
    def add_gradients(self, weights: Sequence[nn.Parameter]) -> None:
        """Add the gradients of all ranks, at once; of a rank that has none, nothing is added."""
        if self.size == 1:
            return
        parts = [
            torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in weights
        ]
        # One exchange of all gradients end to end: each exchange waits for every rank.
        flat = torch.cat([part.flatten().float() for part in parts])
        if self._backend == GLOO:
            flat = flat.cpu()
        self._exchange(lambda: distributed.all_reduce(flat))
        totals = flat.split([part.numel() for part in parts])
        for weight, total in zip(weights, totals, strict=True):
            weight.grad = total.view(weight.shape).to(weight)

    def leave(self) -> None:
        """Have no more to do with the others: those who wait for this one raise `RankLost`."""
        self._patient = None
        distributed.destroy_process_group()

    def _exchange(self, call: Callable[[], T]) -> T | None:
        """Call torch.distributed, with its errors in words of ours; alone, do nothing."""
        if self.size == 1:
            return None
        with self.explained():
            return call()

    @contextmanager
    def explained(self, by: str = "") -> Iterator[None]:
        """Torch's errors, those whose text has `by` in it, as `RankLost`."""
        try:
            yield
        except RuntimeError as error:
            if self.size == 1 or by not in f"{error}":
                raise
            who = self._why_lost() or f"Another rank than {self.rank} has ended or does not answer"
            raise RankLost(
                f"{who}, so all {self.size} have ended; --resume goes on from the last checkpoint, by any --ranks."
            ) from error


def backend_for(size: int) -> str:
    """The backend for ranks of this machine: nccl between GPUs if each rank has one, gloo between processors."""
    here = int(os.environ.get("LOCAL_WORLD_SIZE", size))
    if distributed.is_nccl_available() and torch.cuda.device_count() >= here:
        return f"cpu:{GLOO},cuda:nccl"
    return GLOO


ALONE = Ranks()
