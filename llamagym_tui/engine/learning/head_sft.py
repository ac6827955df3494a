"""Imitation by an adapter on the LM head alone: what the trunk says of demonstrations, then steps on small matrices.

TRL computes log-probabilities from the head's own weights, and so trains no adapter on it. What is learnt here is which
of the admissible replies a state has. How replies are worded is common to all states, so it is not learnt.
"""

import time
from collections.abc import Callable, Sequence

from llamagym_tui.config import SFTSettings, WarmStartStats
from llamagym_tui.engine.learning.head_ppo import HeadPPO
from llamagym_tui.engine.learning.sft import Progress, drawn
from llamagym_tui.engine.policy.episode import replayed
from llamagym_tui.errors import UsageError
from llamagym_tui.game.chat import ChatMessage

STEPS = 100
"""Steps on all demonstrations together, whose rate is that of `HeadPPO`'s first update."""
UNUSED = ("epochs", "min_steps", "batch_size", "lr", "warmup")
"""Settings that these steps have no use for."""


def train_head_on(
    learner: HeadPPO,
    conversations: Sequence[Sequence[ChatMessage]],
    settings: SFTSettings,
    *,
    seed: int = 0,
    progress: Progress = lambda step, steps, loss: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> WarmStartStats:
    """Let the policy of a learner imitate demonstrations; it has a new version afterwards, cancelled or not.

    Args:
        seed: of the choice, if there are more than `max_examples`.
        progress: called after every step.
        should_stop: called between two steps; True ends the training, and what the steps have learnt stays.
    Raises:
        UsageError: settings are given that it has no use for.
    """
    usual = type(settings)()
    unused = [name for name in UNUSED if getattr(settings, name) != getattr(usual, name)]
    if unused:
        named = ", ".join(f"sft.{name}" for name in unused)
        raise UsageError(
            f"an adapter on the LM head alone imitates all demonstrations at once, in {STEPS} steps, and has no use "
            f"for {named}: leave it out, or train all layers (--set lora.layers=all)."
        )
    began_s = time.perf_counter()
    conversations = drawn(conversations, settings, seed)
    trajectories = [replayed(learner.policy, each).finish("terminated") for each in conversations]
    losses = learner.imitate(trajectories, STEPS, progress, should_stop)
    return WarmStartStats(
        demonstrations=len(conversations),
        tokens=sum(
            turn.end - turn.start
            for trajectory in trajectories
            for turn in trajectory.turns
            if turn.is_trained
        ),
        steps=len(losses),
        first_loss=losses[0] if losses else 0.0,
        last_loss=losses[-1] if losses else 0.0,
        elapsed_s=time.perf_counter() - began_s,
        cancelled=len(losses) < STEPS,
    )
