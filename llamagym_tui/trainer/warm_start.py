"""A supervised start inside a session: demonstrations are read and checked, the policy is trained on them, and the
policy that comes out of it is PPO's new reference.

Told in events while it lasts. What it means for the run (episodes under way, checkpoint) is `Run`'s matter.
"""

from __future__ import annotations

from collections.abc import Callable

from llamagym_tui.demos.training_data import TrainingData, training_data
from llamagym_tui.protocol import events
from llamagym_tui.trainer.builders import Builders
from llamagym_tui.trainer.event_sinks import Sink, spaced
from llamagym_tui.trainer.parts import Parts


def warm_start(
    builders: Builders,
    parts: Parts,
    sft_data: str | None,
    *,
    system_prompt: str,
    tell: Sink,
    clock: Callable[[], float],
    should_stop: Callable[[], bool],
) -> None:
    """Train the policy of a run on a file of demonstrations.

    Args:
        builders: change the parts.
        parts: whose policy is trained.
        sft_data: the file. None: the one that ships for the agent.
        system_prompt: the run's; demonstrations under another one are warned of.
        tell: takes events.
        clock: seconds, monotonic.
        should_stop: asked after every step; what was learnt until then stays.
    Raises:
        UsageError: there is no such file.
        DemoFileError: the file has a fault; nothing was trained.
    """
    data = training_data(parts.agent, sft_data)
    if other := data.under_another_prompt(system_prompt):
        tell(events.WarningRaised(message=_other_prompt(other, data)))
    tell(events.PhaseChanged(phase="warm_starting", detail="loading TRL, which takes some seconds"))
    spaced_tell = spaced(tell, clock)
    stats = builders.warm_start(
        parts.policy,
        parts.ppo,
        data.conversations,
        progress=lambda step, steps, loss: spaced_tell(events.WarmStartProgressed(step=step, steps=steps, loss=loss)),
        should_stop=should_stop,
    )
    tell(
        events.WarmStartFinished(
            path=str(data.path),
            episodes=parts.rollout.episodes,
            demonstrations=stats.demonstrations,
            tokens=stats.tokens,
            steps=stats.steps,
            first_loss=stats.first_loss,
            last_loss=stats.last_loss,
            elapsed_s=stats.elapsed_s,
            cancelled=stats.cancelled,
        )
    )


def _other_prompt(count: int, data: TrainingData) -> str:
    return (
        f"{count} of {len(data.demonstrations)} demonstrations were recorded under another system prompt than the "
        "run's, and teach how to play under that one."
    )
