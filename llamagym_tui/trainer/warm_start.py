"""Warm start inside a session: demonstrations are read and reported, and the policy is trained on them; the resulting
policy is PPO's new reference.

Progress is reported in events. What it means for the run (episodes under way, checkpoint) is up to `Run`.
"""

from collections.abc import Callable
from dataclasses import asdict

from llamagym_tui.demos.training_data import TrainingData, doubts, training_facts
from llamagym_tui.protocol import events
from llamagym_tui.trainer.builders import Builders
from llamagym_tui.trainer.event_sinks import EventEmitter
from llamagym_tui.trainer.run import Run

EVALUATION_S = 10.0
"""Seconds after which the evaluations before and after begin no more episodes."""


def report(data: TrainingData, run: Run, emitter: EventEmitter) -> None:
    """Emit what a run is to be trained on, and what speaks against it."""
    facts = training_facts(data, run.agent, run.rollout.system_prompt)
    emitter.emit(facts)
    for doubt in doubts(facts):
        emitter.warn(doubt)


def train(
    builders: Builders, run: Run, data: TrainingData, emitter: EventEmitter, *, should_stop: Callable[[], bool]
) -> None:
    """Train the policy of a run on demonstrations; what was learnt until `should_stop` stays."""
    emit = emitter.throttled()
    stats = builders.warm_start(
        run.policy,
        run.ppo,
        data,
        progress=lambda step, steps, loss: emit(events.WarmStartProgressed(step=step, steps=steps, loss=loss)),
        should_stop=should_stop,
    )
    emitter.emit(events.WarmStartFinished(method=data.method, **asdict(stats)))
