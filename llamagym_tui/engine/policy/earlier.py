"""A policy as it once was: what is trained of it, kept apart, and put in place while that self is to reply.

Of an adapter on the head alone these are the rows that it trains; of any other adapter its weights; else all weights.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

import torch
from msgspec import Struct
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from llamagym_tui.engine.policy.policy import Policy


class SavedSelf(Struct, frozen=True, kw_only=True):
    """An earlier self, as a checkpoint keeps it."""

    version: int
    weights: bytes
    """As safetensors."""


class EarlierSelf:
    def __init__(self, policy: Policy, weights: dict[str, Tensor], version: int) -> None:
        """A self of these weights, by their names; `version` is as of `Policy`."""
        self.policy = policy
        self.version = version
        self._weights = weights

    @classmethod
    def of(cls, policy: Policy) -> Self:
        """The policy as it is now."""
        return cls(policy, _copied(policy), policy.version)

    @classmethod
    def restored(cls, policy: Policy, saved: SavedSelf) -> Self:
        """One that a checkpoint has kept. Raises ValueError: it is damaged."""
        try:
            weights = load(saved.weights)
        except SafetensorError as error:
            raise ValueError(f"the weights of update {saved.version}: {error}") from error
        return cls(policy, weights, saved.version)

    @property
    def saved(self) -> SavedSelf:
        return SavedSelf(version=self.version, weights=save(self._weights))

    @contextmanager
    def in_place(self) -> Iterator[Policy]:
        """Run the policy with these weights."""
        policy = self.policy
        now = _copied(policy)
        version = policy.version
        _put(policy, self._weights)
        policy.version = self.version
        try:
            yield policy
        finally:
            _put(policy, now)
            policy.version = version


def _trained(policy: Policy) -> dict[str, Tensor]:
    """The weights that are trained, by their names."""
    return {
        name: weight
        for name, weight in policy.model.pretrained_model.named_parameters()
        if weight.requires_grad
    }


def _copied(policy: Policy) -> dict[str, Tensor]:
    narrow = policy.narrow
    if narrow is None:
        return {name: weight.detach().clone() for name, weight in _trained(policy).items()}
    rows = narrow.up.detach()[narrow.ids]
    return {"down": narrow.down.detach().clone(), "ids": narrow.ids.clone(), "rows": rows}


@torch.no_grad()
def _put(policy: Policy, weights: dict[str, Tensor]) -> None:
    narrow = policy.narrow
    if narrow is None:
        for name, weight in _trained(policy).items():
            weight.copy_(weights[name])
        return
    narrow.down.copy_(weights["down"])
    # Rows of tokens that were met since are 0, as they were.
    narrow.up[narrow.ids] = 0
    narrow.up[weights["ids"].to(narrow.up.device)] = weights["rows"].to(narrow.up)
