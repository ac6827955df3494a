"""Learning from a person: demonstrations to imitate, and replies that are preferred to others.

For an adapter on the LM head alone it is done here: what the trunk says of the conversations, then small steps on all
of them together. What is learnt is which admissible reply a state has. Weights inside the model are trained by TRL
(`trl_training`), which computes log-probabilities from the head's own weights and so trains no adapter on it.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor, nn

from llamagym_tui.engine.learning.head_steps import HeadSteps
from llamagym_tui.engine.learning.packing import batch_rows
from llamagym_tui.engine.learning.targets import turn_sums
from llamagym_tui.engine.own_torch import own_torch
from llamagym_tui.engine.policy.episode import replayed
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.trajectory import Choice, Trajectory
from llamagym_tui.errors import UsageError
from llamagym_tui.game.chat import ChatMessage, Preference, assistant
from llamagym_tui.settings import DPOSettings, SFTSettings, WarmStartStats

T = TypeVar("T")
Progress = Callable[[int, int, float], None]
"""Called with steps done, steps in all, and the loss of the last one."""
STEPS = 100
"""Steps on all demonstrations together, at the rate of a head's first update."""
PREFERRED = 1.0
"""Nats by which a reply is to be likelier than the one that it is preferred to."""
UNUSED = ("epochs", "min_steps", "batch_size", "lr", "warmup")
"""Settings that these steps do not use."""
_NONE_ADMISSIBLE = (
    "An adapter on the LM head alone learns which admissible reply to choose, and no reply here is one of these: "
    "train all layers (--set lora.layers=all)."
)


def drawn(lessons: Sequence[T], settings: SFTSettings, seed: int) -> Sequence[T]:
    """At most `max_examples` of them, drawn at random."""
    if settings.max_examples is None or len(lessons) <= settings.max_examples:
        return lessons
    return random.Random(seed).sample(list(lessons), settings.max_examples)


@own_torch()
def train_head_on(
    steps: HeadSteps,
    conversations: Sequence[Sequence[ChatMessage]],
    settings: SFTSettings,
    *,
    seed: int = 0,
    progress: Progress = lambda step, steps, loss: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> WarmStartStats:
    """Imitate demonstrations by an adapter on the head; its policy has a new version afterwards, cancelled or not.

    Args:
        seed: of the choice, if there are more than `max_examples`.
        progress: called after every step.
        should_stop: called before every step; True ends the training, and what was learnt stays.
    Raises:
        UsageError: settings are given that it has no use for, or no reply is an admissible one.
    """
    _require_used(settings, "sft")
    conversations = drawn(conversations, settings, seed)
    trajectories = [_chosen(steps.policy, each) for each in conversations]
    own = sum(trajectory.own_turns for trajectory in trajectories)
    if not own:
        raise UsageError(_NONE_ADMISSIBLE)
    return _learnt(
        steps,
        trajectories,
        lambda logprobs: -logprobs.sum() / own,
        len(conversations),
        progress,
        should_stop,
    )


@own_torch()
def prefer_by_head(
    steps: HeadSteps,
    pairs: Sequence[Preference],
    settings: DPOSettings,
    *,
    seed: int = 0,
    progress: Progress = lambda step, steps, loss: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> WarmStartStats:
    """Prefer replies to others, with the arguments of `train_head_on`, by DPO's loss (arXiv:2305.18290, equation 7).

    It ends once each preferred reply is likelier than the other by `PREFERRED` nats, as further steps would take it
    everywhere.

    Raises:
        UsageError: as `train_head_on`; or no batch has shown yet in what observations differ, so that what is preferred
            in some would be taken in all.
    """
    _require_used(settings, "dpo")
    if not steps.narrow.down.any():
        raise UsageError(
            "An adapter on the LM head alone learns from preferences once a batch has shown in what observations "
            "differ: ask again after the first update."
        )
    either = [_either(steps.policy, pair) for pair in drawn(pairs, settings, seed)]
    both = [(first, second) for first, second in either if first.own_turns and second.own_turns]
    if not both:
        raise UsageError(_NONE_ADMISSIBLE)
    trajectories = [each for pair in both for each in pair]
    turns = [turn for each in trajectories for turn in each.turns]
    is_own = torch.tensor([turn.is_trained for turn in turns])
    before: Tensor | None = None

    def loss_of(logprobs: Tensor) -> Tensor:
        nonlocal before
        of_replies = turn_sums(turns, logprobs)[is_own].view(-1, 2)
        margin = (
            of_replies[:, 0] - of_replies[:, 1]
        )  # (P,) nats by which each first reply is likelier
        if before is None:
            before = margin.detach()
        loss: Tensor = -nn.functional.logsigmoid(settings.beta * (margin - before)).mean()
        # Nothing is left to learn: no gradient.
        return loss.detach() if bool((margin >= PREFERRED).all()) else loss

    return _learnt(steps, trajectories, loss_of, len(both), progress, should_stop)


def _learnt(
    steps: HeadSteps,
    trajectories: Sequence[Trajectory],
    loss_of: Callable[[Tensor], Tensor],
    examples: int,
    progress: Progress,
    should_stop: Callable[[], bool],
) -> WarmStartStats:
    began_s = time.perf_counter()
    turns = [turn for each in trajectories for turn in each.turns]
    is_stopped = False

    def is_to_stop() -> bool:
        nonlocal is_stopped
        is_stopped = should_stop()
        return is_stopped

    losses = steps.descend(batch_rows(trajectories), loss_of, STEPS, progress, is_to_stop)
    return WarmStartStats(
        demonstrations=examples,
        tokens=sum(turn.end - turn.start for turn in turns if turn.is_trained),
        steps=len(losses),
        first_loss=losses[0] if losses else 0.0,
        last_loss=losses[-1] if losses else 0.0,
        elapsed_s=time.perf_counter() - began_s,
        cancelled=is_stopped,
    )


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
            f"An adapter on the LM head alone learns from all examples at once, in {STEPS} steps at most, and does not "
            f"use {named}: leave it out, or train all layers (--set lora.layers=all)."
        )
