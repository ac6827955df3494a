"""Checkpoints of a session: what it counts, when to write, whether anything is new, and which one is good.

A checkpoint becomes the last good one when a batch that was played after it has shown nothing wrong.
"""

import contextlib
import math
from pathlib import Path
from typing import Any, Self

import msgspec

from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.errors import RunStoreError
from llamagym_tui.runs.branch import UPDATE_DIR, discard_surplus
from llamagym_tui.settings import Change, GenerationConfig
from llamagym_tui.trainer.builders import Builders
from llamagym_tui.trainer.collapse import CollapseMonitor

RETRY_S = 5.0
"""Seconds after which a checkpoint that could not be written is tried again."""


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """The session's own part of a checkpoint."""

    seed: int
    """Seed of the run."""
    episodes: int = 0
    env_steps: int = 0
    dropped: int = 0
    """Episodes that failed."""
    elapsed_s: float = 0.0
    """Seconds of playing and training."""
    system_prompt: str = ""
    prompt_version: int = 0
    changed: dict[str, Change] = {}
    """Settings that were changed live, by their dotted names."""
    generation: GenerationConfig | None = None
    """Settings of sampling by then. None: nothing was played yet."""
    seen: CollapseMonitor | None = None
    """The collapse monitor, for this prompt and `generation`."""
    started: int = 0
    """Number of the next episode."""
    opponent: Any = None
    """Earlier selves, as the opponent restores them. None: it keeps none."""
    awaits_warm_start: bool = False
    """The warm start that the run begins with was still to be made."""

    def with_prompt(self, system_prompt: str | None) -> Self:
        """The same under another system prompt, which has the next version; None: under the same one.

        A prompt that replaces the agent's own before anything was played keeps version 0.
        """
        if system_prompt is None or system_prompt == self.system_prompt:
            return self
        version = self.prompt_version + 1 if self.env_steps else 0
        return msgspec.structs.replace(
            self, system_prompt=system_prompt, prompt_version=version, seen=None
        )


class Checkpoints:
    def __init__(self, builders: Builders, run_dir: Path, policy: Policy, learner: PPO) -> None:
        self._files = builders.checkpoint_files()
        self._run_dir = run_dir
        self._policy = policy
        self._learner = learner
        self._every_s = builders.config.checkpoint_every_s
        self._most = builders.config.keep_checkpoints
        """Checkpoints that are kept to branch off from, at most."""
        self._last = Counters(seed=builders.config.seed)
        """The counters of the last checkpoint."""
        self._tried_s = -math.inf
        """`elapsed_s` of the last attempt."""
        self.is_failing = False
        """The last attempt to write one failed."""
        self._awaits_judgement = False
        """The latest checkpoint awaits its judgement."""
        self.note = ""
        """For people: why another checkpoint than the latest one was restored; empty if none was."""

    def restore(self) -> Counters:
        """Read policy and learner back, from the latest checkpoint that can be used; where the run stood.

        Raises:
            RunStoreError: the folder has none.
        """
        loaded = self._files.load_checkpoint(self._run_dir, self._policy, self._learner, Counters)
        self._last = loaded.counters
        self.note = loaded.note
        self._tried_s = self._last.elapsed_s
        self._awaits_judgement = not self.note
        return self._last

    def save(self, counters: Counters) -> None:
        """Write a checkpoint. Raises RunStoreError: it cannot be written; the one before still stands."""
        self._tried_s = counters.elapsed_s
        self.is_failing = True
        self._files.save_checkpoint(self._run_dir, self._policy, self._learner, counters)
        self._last = msgspec.structs.replace(counters, opponent=None)
        self._awaits_judgement = True
        self.is_failing = False
        if self._most:
            # Without room for it, the run goes on without a place to branch off from.
            with contextlib.suppress(RunStoreError, OSError):
                name = f"{UPDATE_DIR}{self._learner.updates}"
                self._files.keep_checkpoint(self._run_dir, name)
                discard_surplus(self._run_dir, self._most)

    def judged(self, *, good: bool) -> None:
        """Keep the latest checkpoint if its policy, or a later one, has played well since.

        Raises:
            RunStoreError: the checkpoint cannot be kept; the last good one still stands.
        """
        if good and self._awaits_judgement:
            self._files.keep_checkpoint(self._run_dir)
            self._awaits_judgement = False

    def keep_before_warm_start(self) -> None:
        """Keep the latest checkpoint as the last good one: what a warm start leads to has to prove good first.

        Raises:
            RunStoreError: it cannot be written; the last good one still stands.
        """
        self._files.keep_with_reference(self._run_dir, self._policy, self._learner)

    def roll_back(self) -> None:
        """Put the last good checkpoint into policy and learner.

        Raises:
            RunStoreError: there is none that can be used; all is as it was.
        """
        self._files.roll_back(self._run_dir, self._policy, self._learner)
        self._awaits_judgement = False

    def is_due(self, elapsed_s: float) -> bool:
        """True if the last attempt is long enough ago, or there was none."""
        every_s = min(RETRY_S, self._every_s) if self.is_failing else self._every_s
        return elapsed_s - self._tried_s >= every_s

    def has_news(self, counters: Counters) -> bool:
        """True if anything was played or changed since the last checkpoint."""
        last = self._last
        return (
            counters.env_steps != last.env_steps
            or counters.prompt_version != last.prompt_version
            or counters.changed != last.changed
        )
