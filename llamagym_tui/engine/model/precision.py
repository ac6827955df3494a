"""bf16 products: linear layers multiply in bf16, and everything else stays as it is.

It pays where a processor multiplies bf16 in hardware (AMX, avx512_bf16) and rows are many. Weights are rounded once,
and again when they have changed. Unlike autocast this leaves attention in fp32, which on CPUs is the faster of the two,
and the LM head, so that log-probabilities are not rounded.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from llamagym_tui.config import Precision

NARROWEST = 64
"""Weights with a side below this stay fp32: an adapter's, for which rounding costs more than it saves."""


class Products:
    """How the linear layers of a model multiply."""

    def __init__(self, head: Tensor) -> None:
        """The products of the `head` stay exact."""
        self.head = head
        self._rounded: Any = WeakIdKeyDictionary()
        """By weight: where it lay and which version it was when it was rounded, and what came of it."""

    def at(self, precision: Precision) -> AbstractContextManager[object]:
        """A context in which linear layers multiply at a precision, gradients included."""
        return _Bf16Products(self) if precision == "bf16" else nullcontext()

    def is_rounded(self, weight: Tensor) -> bool:
        return weight is not self.head and weight.dtype == torch.float32 and min(weight.shape) >= NARROWEST

    def rounded(self, weight: Tensor) -> Tensor:
        found: Tensor
        now = weight.data_ptr(), weight._version
        before, found = self._rounded.get(weight, (None, None))
        if before != now:
            with torch.inference_mode(mode=False):  # an update may need what a rollout has rounded
                found = weight.detach().bfloat16()
            self._rounded[weight] = now, found
        return found


class _Bf16Products(TorchFunctionMode):
    """fp32 in and out, the factors rounded to bf16; weights of any other type are let through."""

    def __init__(self, products: Products) -> None:
        super().__init__()
        self.products = products

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is not F.linear or kwargs or not self.products.is_rounded(args[1]):
            return func(*args, **(kwargs or {}))
        inputs, weight, *bias = args
        product = _Product.apply(inputs, weight, self.products.rounded(weight))
        return product if not bias or bias[0] is None else product + bias[0]


class _Product(torch.autograd.Function):
    """A linear layer with rounded factors, in both directions."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, rounded: Tensor) -> Tensor:
        factor = inputs.bfloat16()
        ctx.save_for_backward(factor, rounded)
        return F.linear(factor, rounded).float()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        factor, rounded = ctx.saved_tensors
        gradient = gradients[0].bfloat16()
        of_inputs, of_weight = None, None
        if ctx.needs_input_grad[0]:
            of_inputs = (gradient @ rounded).float()
        if ctx.needs_input_grad[1]:
            of_weight = (gradient.flatten(0, -2).mT @ factor.flatten(0, -2)).float()
        return of_inputs, of_weight, None
