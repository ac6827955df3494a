"""bf16 products: linear layers multiply in bf16, and everything else stays as it is.

It pays where a processor multiplies bf16 in hardware (AMX, avx512_bf16) and rows are many, as each forward rounds the
weights again. Unlike autocast this leaves attention in fp32, which on CPUs is the faster of the two, and the LM head,
so that log-probabilities are not rounded.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.overrides import TorchFunctionMode

from llamagym_tui.config import Precision


def products(precision: Precision, head: Tensor) -> AbstractContextManager[object]:
    """A context in which linear layers multiply at a precision, gradients included; not so the `head`."""
    return _Bf16Products(head) if precision == "bf16" else nullcontext()


NARROWEST = 64
"""Weights with a side below this stay fp32: an adapter's, for which rounding costs more than it saves."""


class _Bf16Products(TorchFunctionMode):
    """fp32 in and out, the factors rounded to bf16; weights of any other type are let through."""

    def __init__(self, head: Tensor) -> None:
        super().__init__()
        self.head = head

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is not F.linear or kwargs or not self._is_rounded(args[1]):
            return func(*args, **(kwargs or {}))
        inputs, weight, *bias = args
        product = F.linear(inputs.bfloat16(), weight.bfloat16()).float()
        return product if not bias or bias[0] is None else product + bias[0]

    def _is_rounded(self, weight: Tensor) -> bool:
        return weight is not self.head and weight.dtype == torch.float32 and min(weight.shape) >= NARROWEST
