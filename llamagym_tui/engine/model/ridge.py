"""A critic in closed form: ridge regression of returns on standardized hidden states.

It forgets by a constant factor an update, as the policy that it judges changes. Its memory is sums, so that it goes on
from a checkpoint exactly. Notation: N states, D hidden size.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

PENALTY = 1000.0
"""Of the squared weights, in states that say nothing."""
MEMORY = 0.9
"""Weight of earlier states after an update."""


class RidgeCritic(nn.Module):
    """Values that are a linear function of standardized hidden states; 0 before the first fit."""

    mean: Tensor
    scale: Tensor
    products: Tensor
    moments: Tensor
    weight: Tensor
    bias: Tensor

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.register_buffer("mean", torch.zeros(hidden_size))
        self.register_buffer("scale", torch.ones(hidden_size))
        # Sums over all states x: of the outer products of (1, x), and of its products with the return.
        self.register_buffer("products", torch.zeros(hidden_size + 1, hidden_size + 1))
        self.register_buffer("moments", torch.zeros(hidden_size + 1))
        self.register_buffer("weight", torch.zeros(hidden_size))
        self.register_buffer("bias", torch.zeros(()))

    def forward(self, hidden: Tensor) -> Tensor:
        """(..., D) hidden states to (...) values, in fp32."""
        return ((hidden.float() - self.mean) / self.scale) @ self.weight + self.bias

    @torch.no_grad()
    def fit(self, hidden: Tensor, returns: Tensor) -> None:
        """Take in a batch.

        Args:
            hidden: (N, D) states; those of the first batch set the standard.
            returns: (N,) of each.
        """
        hidden = hidden.float()
        if not self.products.any():
            self.mean.copy_(hidden.mean(0))
            self.scale.copy_(hidden.std(0, unbiased=False).clamp(min=1e-6))
        standard = (hidden - self.mean) / self.scale
        seen = torch.cat([torch.ones(len(standard), 1, device=standard.device), standard], dim=1)
        self.products.mul_(MEMORY).add_(seen.T @ seen)
        self.moments.mul_(MEMORY).add_(seen.T @ returns)
        penalty = torch.full_like(self.moments, PENALTY)
        penalty[0] = 1e-3  # the mean return is no weight that should be small
        # (X'X + penalty) w = X'y, in fp64: the states of a model are nearly dependent.
        system = self.products.double() + torch.diag(penalty.double())
        solved = torch.linalg.solve(system, self.moments.double()).float()
        self.bias.copy_(solved[0])
        self.weight.copy_(solved[1:])
