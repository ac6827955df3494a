"""Learning from a person: demonstrations to imitate, and replies that are preferred to others.

For an adapter on the LM head alone it is done here: what the trunk says of the conversations, then small steps on all
of them together. What is learnt is which admissible reply a state has. Weights inside the model are trained by TRL
(`trl_training`), which computes log-probabilities from the head's own weights and so trains no adapter on it.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from llamagym_tui.engine.learning import trl_training
from llamagym_tui.engine.learning.head_steps import HeadSteps
from llamagym_tui.engine.learning.packing import batch_rows
from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.learning.targets import turn_sums
from llamagym_tui.engine.learning.trl_training import Progress
from llamagym_tui.engine.own_torch import own_torch
from llamagym_tui.engine.policy.earlier import EarlierSelf
from llamagym_tui.engine.policy.episode import replayed
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.trajectory import Choice, Trajectory
from llamagym_tui.errors import UsageError
from llamagym_tui.game.chat import ChatMessage, Preference, assistant
from llamagym_tui.settings import DPOSettings, SFTSettings, WarmStartStats

T = TypeVar("T")
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
def learn_from(
    learner: PPO,
    lessons: Sequence[Any],
    settings: SFTSettings,
    *,
    seed: int = 0,
    progress: Progress = lambda step, steps, loss: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> WarmStartStats:
    """Imitate conversations, or prefer replies to others.

    The policy has a new version afterwards, cancelled or not, and is the learner's reference.

    Args:
        lessons: conversations, or a `Preference` each.
        settings: `SFTSettings` to imitate, `DPOSettings` to prefer.
        seed: of the order, and of the choice if there are more lessons than `max_examples`.
        progress: called after every step.
        should_stop: called between steps; True ends the training, and what was learnt stays.
    Raises:
        UsageError: an adapter on the head has no use for a setting, or cannot learn from these lessons.
        LlamaGymError: a weight is not finite any more, and the policy is lost.
    """
    lessons = drawn(lessons, settings, seed)
    is_dpo = isinstance(settings, DPOSettings)
    learn: Callable[..., WarmStartStats]
    if isinstance(learner.steps, HeadSteps):
        learn = partial(prefer_by_head if is_dpo else imitate_by_head, learner.steps)
    else:
        learn = partial(trl_training.prefer if is_dpo else trl_training.imitate, learner.policy)
        learn = partial(learn, seed=seed)
    stats = learn(lessons, settings, progress=progress, should_stop=should_stop)
    if learner.reference is not None:
        learner.reference = EarlierSelf.of(learner.policy)
    return stats


def imitate_by_head(
    steps: HeadSteps,
    conversations: Sequence[Sequence[ChatMessage]],
    settings: SFTSettings,
    *,
    progress: Progress,
    should_stop: Callable[[], bool],
) -> WarmStartStats:
    """Imitate demonstrations by an adapter on the head."""
    _require_used(settings, "sft")
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


def prefer_by_head(
    steps: HeadSteps,
    pairs: Sequence[Preference],
    settings: DPOSettings,
    *,
    progress: Progress,
    should_stop: Callable[[], bool],
) -> WarmStartStats:
    """Prefer replies to others by DPO's loss (arXiv:2305.18290, equation 7).

    It ends once each preferred reply is likelier than the other by `PREFERRED` nats, as further steps would take it
    everywhere. It refuses to learn before a batch has shown in what observations differ, as what is preferred in some
    would be taken in all.
    """
    _require_used(settings, "dpo")
    if not steps.narrow.down.any():
        raise UsageError(
            "An adapter on the LM head alone learns from preferences once a batch has shown in what observations "
            "differ: ask again after the first update."
        )
    either = [_either(steps.policy, pair) for pair in pairs]
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
