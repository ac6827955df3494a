"""States of the random generators that a process shares: Python's, numpy's and torch's.

The engine has generators of its own; environments and agents of users may draw from these.
"""

import random
from typing import Any, Self

import numpy as np
from msgspec import Struct


class Generators(Struct, frozen=True):
    python: tuple[int, tuple[int, ...], float | None]
    numpy: list[Any]
    torch: bytes

    @classmethod
    def now(cls) -> Self:
        import torch

        version, internal, gauss = random.getstate()
        kind, keys, *rest = np.random.get_state()
        shared = [kind, list(map(int, keys)), *rest]
        return cls((version, internal, gauss), shared, bytes(torch.get_rng_state().tolist()))

    def restore(self) -> None:
        """Let all of them go on from here."""
        import torch

        random.setstate(self.python)
        np.random.set_state(tuple(self.numpy))
        torch.set_rng_state(torch.tensor(list(self.torch), dtype=torch.uint8, device="cpu"))
