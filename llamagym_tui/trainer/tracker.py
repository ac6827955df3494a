"""Sends the figures of a run to TensorBoard or Weights & Biases while it goes on.

Both write into the run's folder. wandb stays offline unless WANDB_MODE says otherwise.
"""

import math
import os
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from llamagym_tui.protocol import events
from llamagym_tui.settings import RunConfig, flat

PROJECT = "llamagym-tui"
"""The name of the project that wandb files runs under."""


class Tracker:
    """A sink of a session's events; raises OSError if the library fails, so that the session goes on without it."""

    def __init__(self, config: RunConfig) -> None:
        """Nothing is opened before the first figures, which say how far a resumed run had come."""
        self._config = config
        self._writer: Any = None
        self._update = 0
        self._turns = 0
        self._prompt = ""

    def take(self, event: events.Event) -> None:
        figures: dict[str, float] = {}
        match event:
            case events.RunStarted() | events.PromptChanged():
                self._prompt = f"v{event.prompt_version}: {event.system_prompt}"
            case events.EpisodesCounted():
                self._turns = event.env_steps
            case events.UpdateFinished():
                self._update = event.update
                figures = {
                    f"update/{name}": value
                    for name, value in msgspec.structs.asdict(event.stats).items()
                }
            case events.EvaluationFinished():
                kind = "greedy" if event.greedy else "sampled"
                figures[f"evaluation/{kind}_mean_return"] = event.mean_return
                figures[f"evaluation/{kind}_stderr"] = event.return_stderr
        finite = {name: value for name, value in figures.items() if math.isfinite(value)}
        if not finite:
            return
        try:
            self._log(finite)
        except Exception as error:
            raise OSError(f"{self._config.track}: {error}") from error

    def close(self) -> None:
        if self._writer is None:
            return
        if self._config.track == "tensorboard":
            self._writer.close()
        else:
            self._writer.finish()

    def _log(self, figures: dict[str, float]) -> None:
        if self._writer is None:
            self._writer = self._opened()
        if self._config.track == "tensorboard":
            for name, value in figures.items():
                self._writer.add_scalar(name, value, self._update)
            self._writer.add_scalar("turns", self._turns, self._update)
            self._writer.add_text("system prompt", self._prompt, self._update)
            self._writer.flush()
        else:
            counts = {"update": self._update, "turns": self._turns}
            self._writer.log({**counts, **figures, "system prompt": self._prompt})

    def _opened(self) -> Any:
        run_dir = Path(self._config.run_dir)
        if self._config.track == "tensorboard":
            library = import_module("torch.utils.tensorboard")
            # What an earlier process logged of updates that are made again is hidden.
            return library.SummaryWriter(str(run_dir / "tensorboard"), purge_step=self._update)
        os.environ.setdefault("WANDB_MODE", "offline")
        wandb = import_module("wandb")
        return wandb.init(
            project=PROJECT, name=run_dir.name, dir=str(run_dir), config=flat(self._config)
        )
