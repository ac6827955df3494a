"""A policy as it once was: what is trained of it, kept apart, and put in place for a while.

Of an adapter on the head alone these are its directions and the rows that it trains; of any other adapter its weights;
else all weights. An earlier self is an opponent, and the reference that PPO keeps the policy near to.
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
        self.weights = weights
        self.version = version

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
        return SavedSelf(version=self.version, weights=save(self.weights))

    @contextmanager
    def in_place(self) -> Iterator[Policy]:
        """Run the policy with these weights."""
        policy = self.policy
        version = policy.version
        self._swap()
        policy.version = self.version
        try:
            yield policy
        finally:
            self._swap()
            policy.version = version

    @torch.no_grad()
    def _swap(self) -> None:
        """Exchange the policy's weights and these."""
        narrow = self.policy.narrow
        if narrow is None:
            for name, weight in _trained(self.policy).items():
                now = weight.data
                weight.data = self.weights[name].to(now)
                self.weights[name] = now
            return
        now_in_place = _copied(self.policy)
        narrow.down.copy_(self.weights["down"])
        # Rows of tokens that were met since are 0, as they were.
        narrow.up[narrow.ids] = 0
        narrow.up[self.weights["ids"].to(narrow.up.device)] = self.weights["rows"].to(narrow.up)
        self.weights = now_in_place


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
