"""A run's real parts without its session: what the benchmarks of speed time.

Agent, model, policy, PPO and environments come from the trainer's own builders; there are no events, no checkpoints
and no screen. Settings are the defaults of `train`, changed by words such as ``ppo.epochs=4``.
"""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Sequence
from typing import Any

import msgspec
import torch

from llamagym_tui.config import RunConfig, from_dict
from llamagym_tui.engine.learning.update_stats import PPOStats
from llamagym_tui.errors import ConfigError
from llamagym_tui.model_registry import BUNDLED, with_defaults
from llamagym_tui.trainer.builders import Builders


class BareRun:
    """One model that plays and learns, update after update."""

    def __init__(self, config: RunConfig, *, threads: int) -> None:
        """Load the model and make the environments.

        Args:
            config: its agent, model, PPO, sampling and environments count; where it is kept does not.
            threads: of torch, for this process.
        """
        builders = Builders(config)
        self.agent = builders.agent()
        self.loaded = builders.model()
        torch.set_num_threads(threads)
        self.policy = builders.policy(self.agent, self.loaded)
        self.ppo = builders.ppo(self.policy)
        self.rollout = builders.rollout(self.agent, self.policy, seed=config.seed, emit=lambda event: None)

    def update(self) -> PPOStats:
        """Play a batch and learn from it."""
        while not self.rollout.batch_ready:
            self.rollout.step()
        return self.ppo.update(self.rollout.take_batch())


def settings(agent: str, changes: Sequence[str] = ()) -> RunConfig:
    """The settings of a run, changed by words.

    Args:
        agent: as of `train`.
        changes: each ``name=value`` or ``group.name=value``; a value is JSON, or a word that stands for itself.
    Raises:
        ConfigError: there is no such setting, or its value is out of range.
    """
    values: dict[str, Any] = {"agent": agent, "run_dir": "."}
    for change in changes:
        path, found, text = change.partition("=")
        *groups, name = path.split(".")
        if not found or not name:
            raise ConfigError(f"A setting is changed by name=value, not by {change!r}.")
        place = values
        for group in groups:
            place = place.setdefault(group, {})
        place[name] = _value(text)
    return from_dict(RunConfig, with_defaults(values, values.get("model", BUNDLED)))


def machine() -> str:
    """Processor, cores, system and torch, in one line."""
    try:
        told = subprocess.run(["lscpu"], stdout=subprocess.PIPE, text=True, check=True).stdout
        facts = dict(line.split(":", 1) for line in told.splitlines() if ":" in line)
        name, cores = facts["Model name"].strip(), facts["CPU(s)"].strip()
    except (OSError, subprocess.CalledProcessError, KeyError):
        name, cores = platform.processor() or platform.machine(), "?"
    return f"{name}, {cores} cores, {platform.system()}, Python {platform.python_version()}, torch {torch.__version__}"


def _value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
