"""bf16 products: linear layers multiply in bf16, and everything else stays as it is.

It pays where a processor multiplies bf16 in hardware (AMX, avx512_bf16) and rows are many. Weights are rounded once,
and again when they have changed. Unlike autocast this leaves attention in fp32, which on CPUs is faster in the update,
and the LM head, so that log-probabilities are not rounded.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from llamagym_tui.config import Precision

ROUNDS = ContextVar("ROUNDS", default=False)
"""Whether linear layers round, in this thread."""
NARROWEST = 64
"""Weights with a side below this stay fp32: an adapter's, for which rounding costs more than it saves."""


class Products:
    """How the linear layers of a model multiply."""

    def __init__(self, lm: nn.Module, head: Tensor) -> None:
        """The products of the `head` stay exact, and so do those with weights that are not fp32."""
        linears = (
            module
            for module in lm.modules()
            if isinstance(module, nn.Linear) and module.weight is not head
        )
        self._linears = [
            each
            for each in linears
            if each.weight.dtype == torch.float32 and min(each.weight.shape) >= NARROWEST
        ]
        self._rounded: Any = WeakIdKeyDictionary()
        """By weight: where it lay and which version it was when it was rounded, and what came of it.

        Torch counts a tensor's version up at each change in place, such as an optimizer's step.
        """

    @contextmanager
    def at(self, precision: Precision) -> Iterator[None]:
        """A context in which linear layers multiply at a precision, gradients included."""
        rounds = precision == "bf16"
        if rounds:
            # From the first time on, these layers ask in each forward whether they round.
            for module in self._linears:
                vars(module).setdefault("forward", partial(self._product, module))
        before = ROUNDS.set(rounds)
        try:
            yield
        finally:
            ROUNDS.reset(before)

    def _product(self, module: nn.Linear, inputs: Tensor) -> Tensor:
        if not ROUNDS.get():
            return F.linear(inputs, module.weight, module.bias)
        product: Tensor = _Product.apply(inputs, module.weight, self.rounded(module.weight))
        return product if module.bias is None else product + module.bias

    def rounded(self, weight: Tensor) -> Tensor:
        """A weight in bf16, rounded anew only where it has changed since the last time."""
        found: Tensor
        now = (weight.data_ptr(), weight._version)
        before, found = self._rounded.get(weight, (None, None))
        if before != now:
            # An update may need what a rollout has rounded, which computes in inference mode.
            with torch.inference_mode(mode=False):
                found = weight.detach().bfloat16()
            self._rounded[weight] = (now, found)
        return found


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
        needs_inputs, needs_weight, _ = ctx.needs_input_grad
        of_inputs = None
        of_weight = None
        if needs_inputs:
            of_inputs = (gradient @ rounded).float()
        if needs_weight:
            of_weight = (gradient.flatten(0, -2).mT @ factor.flatten(0, -2)).float()
        return of_inputs, of_weight, None
