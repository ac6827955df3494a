"""Warm start inside a session: demonstrations are read and checked, and the policy is trained on them; the resulting
policy is PPO's new reference.

Progress is reported in events. What it means for the run (episodes under way, checkpoint) is up to `Run`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from llamagym_tui.demos.training_data import training_data
from llamagym_tui.demos.training_facts import doubts, training_facts
from llamagym_tui.protocol import events
from llamagym_tui.trainer.builders import Builders
from llamagym_tui.trainer.event_sinks import EventEmitter

if TYPE_CHECKING:
    from llamagym_tui.trainer.run import Run


def warm_start(
    builders: Builders, run: Run, sft_data: str | None, emitter: EventEmitter, *, should_stop: Callable[[], bool]
) -> None:
    """Train the policy of a run on a file of demonstrations.

    Args:
        builders: change the parts.
        run: whose policy is trained; it warns of demonstrations under another prompt than its own.
        sft_data: the file. None: the one that ships for the agent.
        emitter: of the session.
        should_stop: called after every step; what was learnt until then stays.
    Raises:
        UsageError: there is no such file.
        DemoFileError: the file has a fault; nothing was trained.
    """
    data = training_data(run.agent, sft_data)
    facts = training_facts(data, run.agent, run.rollout.system_prompt)
    emitter.emit(facts)
    for doubt in doubts(facts):
        emitter.warn(doubt)
    emitter.emit(events.PhaseChanged(phase="warm_starting", detail="loading TRL, which takes some seconds"))
    emit = emitter.throttled()
    stats = builders.warm_start(
        run.policy,
        run.ppo,
        data.conversations,
        progress=lambda step, steps, loss: emit(events.WarmStartProgressed(step=step, steps=steps, loss=loss)),
        should_stop=should_stop,
    )
    emitter.emit(
        events.WarmStartFinished(
            path=str(data.path),
            episodes=run.rollout.episodes,
            demonstrations=stats.demonstrations,
            tokens=stats.tokens,
            steps=stats.steps,
            first_loss=stats.first_loss,
            last_loss=stats.last_loss,
            elapsed_s=stats.elapsed_s,
            cancelled=stats.cancelled,
        )
    )
