"""The real parts of a run for a benchmark: with a session around them, or without one.

Agent, model, policy, PPO and environments come from the trainer's own builders. Settings are the defaults of `train`,
changed as by `train --set`.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence

from llamagym_tui.engine.own_torch import set_threads
from llamagym_tui.protocol.commands import AnyCommand
from llamagym_tui.protocol.events import Event
from llamagym_tui.runs.model_registry import BUNDLED, with_defaults
from llamagym_tui.runs.run_store import RunStore
from llamagym_tui.settings import RunConfig, from_dict, typed
from llamagym_tui.settings.run import in_sections
from llamagym_tui.trainer.builders import Builders
from llamagym_tui.trainer.session import Session


class BareRun:
    """One model that plays and learns, update after update, without session, events and checkpoints."""

    def __init__(self, config: RunConfig, *, threads: int) -> None:
        """Load the model and make the environments.

        Args:
            config: its agent, model, PPO, sampling and environments count; where it is kept does not.
            threads: that compute.
        """
        builders = Builders(config)
        self.agent = builders.agent()
        self.loaded = builders.model()
        self.policy = builders.policy(self.agent, self.loaded)
        set_threads(threads)
        self.learner = builders.learner(self.policy)
        self.rollout = builders.rollout(
            self.agent, self.policy, seed=config.seed, emit=lambda event: None
        )

    def play(self) -> None:
        """Fill a batch."""
        while not self.rollout.batch_ready:
            self.rollout.step()


def run_session(
    config: RunConfig,
    on_event: Callable[[Event, queue.SimpleQueue[AnyCommand]], None],
) -> Session:
    """A whole session in this process; the session at its end.

    Args:
        config: with a run folder that can be made.
        on_event: takes each event, and the queue of commands.
    Raises:
        Exception: why the session failed.
    """
    commands: queue.SimpleQueue[AnyCommand] = queue.SimpleQueue()
    sinks = [lambda event: on_event(event, commands)]
    session = Session(config, RunStore.create(config), commands, sinks=sinks)
    session.run()
    if session.error is not None:
        raise session.error
    return session


def settings(agent: str, changes: Sequence[str] = (), *, model: str = BUNDLED) -> RunConfig:
    """The settings of a run.

    Args:
        agent: as of `train`.
        changes: each NAME=VALUE, as `train --set` takes them.
        model: as of `train`.
    Raises:
        UsageError: there is no such setting, or its value is not one that it takes.
    """
    found = {"agent": agent, "run_dir": ".", "model": model}
    in_sections(typed.assigned(changes), found)
    return from_dict(RunConfig, with_defaults(found, model))
