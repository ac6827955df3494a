"""Which settings may change while a run is under way, and what a change of them means.

Names are dotted paths in `RunConfig`. A setting that moves along a line (`ppo.lr` to `ppo.lr_final`) and is changed
stands still from then on: its final value becomes the same, unless that is changed with it. Pure, and known to both
processes; `llamagym_tui.trainer.steering` puts a change into effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from llamagym_tui.config import RunConfig, from_dict
from llamagym_tui.errors import ConfigError

Value = bool | int | float | str | None
"""What a setting can be changed to."""

LIVE = (
    "ppo.lr",
    "ppo.lr_final",
    "ppo.value_lr",
    "ppo.kl_coef",
    "ppo.kl_coef_final",
    "ppo.kl_target",
    "ppo.entropy_coef",
    "ppo.entropy_coef_final",
    "ppo.clip_range",
    "ppo.target_kl",
    "ppo.parse_penalty",
    "ppo.max_grad_norm",
    "ppo.epochs",
    "ppo.batch_size",
    "ppo.mini_batch_size",
    "generation.temperature",
    "generation.max_new_tokens",
    "generation.policy",
    "generation.normalization",
    "n_envs",
    "on_collapse",
)
"""Settings that may change live; all others are the run's for good."""
FINAL = {name: f"{name}_final" for name in ("ppo.lr", "ppo.kl_coef", "ppo.entropy_coef")}
"""Where a setting that moves along a line ends."""


class Change(Struct, frozen=True):
    """A setting that was changed live."""

    before: Value
    """As the run began with it."""
    after: Value
    """As it is now."""


def spelt_out(changes: Mapping[str, Value]) -> dict[str, Value]:
    """Changes, with the final values that follow from them."""
    finals = {FINAL[name]: value for name, value in changes.items() if name in FINAL}
    return {**finals, **changes}


def changed(config: RunConfig, changes: Mapping[str, Value]) -> RunConfig:
    """The settings after changes, all of them or none.

    Raises:
        ConfigError: a setting cannot change live, or its value is outside its range; the message names it.
    """
    values = msgspec.to_builtins(config)
    for name, value in changes.items():
        if name not in LIVE:
            raise ConfigError(f"{name} cannot be changed while the run is under way; these can: {', '.join(LIVE)}.")
        group, key = _place(values, name)
        group[key] = value
    now = from_dict(RunConfig, values)
    if now.ppo.kl_target is not None and "ppo.kl_coef" in changes:
        raise ConfigError(
            "ppo.kl_coef is adapted by itself while there is a ppo.kl_target; change that, or set it to None."
        )
    return now


def value_of(config: RunConfig, name: str) -> Value:
    """The value of a setting by its dotted name."""
    group, key = _place(msgspec.to_builtins(config), name)
    value: Value = group[key]
    return value


def changes_since(began: RunConfig, now: RunConfig) -> dict[str, Change]:
    """What differs between the settings at a run's beginning and those of now."""
    pairs = {name: Change(value_of(began, name), value_of(now, name)) for name in LIVE}
    return {name: change for name, change in pairs.items() if change.before != change.after}


def changes_to_take_back(config: RunConfig, earlier: Mapping[str, Change]) -> dict[str, Value]:
    """Changes that a resumed run has to make again: those of settings that were not given anew meanwhile."""
    known = {name: change for name, change in earlier.items() if name in LIVE}
    return {name: change.after for name, change in known.items() if value_of(config, name) == change.before}


def begins_new_batch(before: RunConfig, now: RunConfig) -> bool:
    """Whether a batch cannot hold episodes of both settings."""
    return (before.generation, before.n_envs) != (now.generation, now.n_envs)


def _place(values: dict[str, Any], name: str) -> tuple[dict[str, Any], str]:
    """The dictionary that holds a setting, and its key there."""
    *path, key = name.split(".")
    for part in path:
        values = values[part]
    return values, key
