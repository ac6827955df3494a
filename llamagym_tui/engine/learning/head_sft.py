"""Demonstrations and preferences for an adapter on the LM head alone: what the trunk says of them, then small steps.

TRL computes log-probabilities from the head's own weights, and so trains no adapter on it. What is learnt here is which
of the admissible replies a state has. How replies are worded is common to all states, so it is not learnt.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from llamagym_tui.config import DPOSettings, SFTSettings, WarmStartStats
from llamagym_tui.engine.learning.head_ppo import HeadPPO
from llamagym_tui.engine.learning.sft import Progress, drawn
from llamagym_tui.engine.own_torch import own_torch
from llamagym_tui.engine.policy.episode import replayed
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.trajectory import Choice, Trajectory
from llamagym_tui.errors import UsageError
from llamagym_tui.game.chat import ChatMessage, Preference, assistant

STEPS = 100
"""Steps on all demonstrations together, whose rate is that of `HeadPPO`'s first update."""
_NONE_ADMISSIBLE = (
    "An adapter on the LM head alone learns which admissible reply to choose, and no reply here is one of these: "
    "train all layers (--set lora.layers=all)."
)
UNUSED = ("epochs", "min_steps", "batch_size", "lr", "warmup")
"""Settings that these steps have no use for."""


@own_torch()
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
    _require_used(settings, "sft")
    began_s = time.perf_counter()
    conversations = drawn(conversations, settings, seed)
    trajectories = [_chosen(learner.policy, each) for each in conversations]
    if not any(trajectory.own_turns for trajectory in trajectories):
        raise UsageError(_NONE_ADMISSIBLE)
    losses = learner.imitate(trajectories, STEPS, progress, should_stop)
    return _stats(trajectories, len(conversations), losses, began_s, is_whole=len(losses) == STEPS)


@own_torch()
def prefer_by_head(
    learner: HeadPPO,
    pairs: Sequence[Preference],
    settings: DPOSettings,
    *,
    seed: int = 0,
    progress: Progress = lambda step, steps, loss: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> WarmStartStats:
    """Let the policy of a learner prefer replies to others, with the arguments of `train_head_on`.

    Raises:
        UsageError: settings are given that it has no use for; or no batch has shown yet in what observations differ, so
            that what is preferred in some would be taken in all.
    """
    _require_used(settings, "dpo")
    if not learner.narrow.down.any():
        raise UsageError(
            "an adapter on the LM head alone learns from preferences once a batch has shown in what observations "
            "differ: ask again after the first update."
        )
    began_s = time.perf_counter()
    is_cancelled = False

    def is_to_stop() -> bool:
        nonlocal is_cancelled
        is_cancelled = should_stop()
        return is_cancelled

    either = [_either(learner.policy, pair) for pair in drawn(pairs, settings, seed)]
    found = [(first, second) for first, second in either if first.own_turns and second.own_turns]
    if not found:
        raise UsageError(_NONE_ADMISSIBLE)
    losses = learner.prefer(found, settings.beta, STEPS, progress, is_to_stop)
    chosen = [first for first, _ in found]
    return _stats(chosen, len(found), losses, began_s, is_whole=not is_cancelled)


def _either(policy: Policy, pair: Preference) -> tuple[Trajectory, Trajectory]:
    """The conversation of a pair with either reply, the only one that counts as the policy's own."""
    before: list[ChatMessage] = []
    for message in pair.prompt:
        if message["role"] == "assistant":
            message = {**message, "weight": 0}
        before.append(message)
    first = _chosen(policy, [*before, assistant(pair.chosen)])
    second = _chosen(policy, [*before, assistant(pair.rejected)])
    return first, second


def _chosen(policy: Policy, conversation: Sequence[ChatMessage]) -> Trajectory:
    """A conversation whose replies were chosen among the admissible ones; any other reply is not trained on."""
    trajectory = replayed(policy, conversation).finish("terminated")
    for segment in trajectory.segments:
        for at, turn in enumerate(segment.turns):
            trie = policy.trie_of(turn.actions)
            reply = tuple(segment.ids[turn.start : turn.end])
            if turn.is_trained and reply in trie.replies:
                chosen = trie.replies.index(reply)
                choice = Choice(chosen, 0.0, trie.replies, policy.reply_divisors(trie))
                segment.turns[at] = replace(turn, choice=choice)
            else:
                segment.turns[at] = replace(turn, is_trained=False)
    return trajectory


def _require_used(settings: SFTSettings, section: str) -> None:
    usual = type(settings)()
    unused = [name for name in UNUSED if getattr(settings, name) != getattr(usual, name)]
    if unused:
        named = ", ".join(f"{section}.{name}" for name in unused)
        raise UsageError(
            f"an adapter on the LM head alone learns from all examples at once, in {STEPS} steps at most, and has no "
            f"use for {named}: leave it out, or train all layers (--set lora.layers=all)."
        )


def _stats(
    trajectories: Sequence[Trajectory],
    examples: int,
    losses: Sequence[float],
    began_s: float,
    *,
    is_whole: bool,
) -> WarmStartStats:
    return WarmStartStats(
        demonstrations=examples,
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
        cancelled=not is_whole,
    )
