"""Learning from a person: demonstrations to imitate, and replies that are preferred to others.

For an adapter on the LM head alone it is done here: what the trunk says of the conversations, then small steps on all
of them together. What is learnt is which admissible reply a state has. Weights inside the model are trained by TRL
(`trl_training`), which computes log-probabilities from the head's own weights and so trains no adapter on it.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from llamagym_tui.engine.learning import trl_training
from llamagym_tui.engine.learning.head_steps import HeadSteps
from llamagym_tui.engine.learning.packing import batch_rows
from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.learning.targets import turn_sums
from llamagym_tui.engine.learning.trl_training import Progress, Watch
from llamagym_tui.engine.own_torch import own_torch
from llamagym_tui.engine.policy.earlier import EarlierSelf
from llamagym_tui.engine.policy.episode import replayed
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.trajectory import Choice, Trajectory
from llamagym_tui.errors import UsageError
from llamagym_tui.game.chat import ChatMessage, Preference, assistant
from llamagym_tui.settings import DPOSettings, SFTSettings, WarmStartStats

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
    began_s = time.perf_counter()
    most = settings.max_examples
    if most is not None and len(lessons) > most:
        lessons = random.Random(seed).sample(list(lessons), most)
    steps = learner.steps
    policy = learner.policy
    watch = Watch(progress, should_stop)
    if isinstance(steps, HeadSteps):
        _require_used(settings)
        if isinstance(settings, DPOSettings):
            tokens = prefer_by_head(steps, lessons, settings.beta, watch)
        else:
            tokens = imitate_by_head(steps, lessons, watch)
    elif isinstance(settings, DPOSettings):
        tokens = trl_training.prefer(policy, lessons, settings, seed, watch)
    else:
        tokens = trl_training.imitate(policy, lessons, settings, seed, watch)
    if learner.reference is not None:
        learner.reference = EarlierSelf.of(policy)
    losses = watch.losses
    return WarmStartStats(
        demonstrations=len(lessons),
        tokens=tokens,
        steps=len(losses),
        first_loss=losses[0] if losses else 0.0,
        last_loss=losses[-1] if losses else 0.0,
        elapsed_s=time.perf_counter() - began_s,
        cancelled=watch.is_stopped,
    )


def imitate_by_head(
    steps: HeadSteps, conversations: Sequence[Sequence[ChatMessage]], watch: Watch
) -> int:
    """Imitate demonstrations by an adapter on the head; the number of tokens that it was trained on."""
    trajectories = [_chosen(steps.policy, each) for each in conversations]
    own = sum(trajectory.own_turns for trajectory in trajectories)
    if not own:
        raise UsageError(_NONE_ADMISSIBLE)
    return _descend(steps, trajectories, lambda logprobs: -logprobs.sum() / own, watch)


def prefer_by_head(steps: HeadSteps, pairs: Sequence[Preference], beta: float, watch: Watch) -> int:
    """Prefer replies to others by DPO's loss (arXiv:2305.18290, equation 7); the number of tokens of all of them.

    It ends once each preferred reply is likelier than the other by `PREFERRED` nats, as further steps would take it
    everywhere. It refuses to learn before a batch has shown in what observations differ, as what is preferred in some
    would be taken in all.
    """
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
        # (P,) nats by which each first reply is likelier
        margin = of_replies[:, 0] - of_replies[:, 1]
        if before is None:
            before = margin.detach()
        loss: Tensor = -nn.functional.logsigmoid(beta * (margin - before)).mean()
        # Nothing is left to learn: no gradient.
        return loss.detach() if bool((margin >= PREFERRED).all()) else loss

    return _descend(steps, trajectories, loss_of, watch)


def _descend(
    steps: HeadSteps,
    trajectories: Sequence[Trajectory],
    loss_of: Callable[[Tensor], Tensor],
    watch: Watch,
) -> int:
    """Make steps down a loss of the log-probabilities of all decisions; the number of tokens that have one."""
    steps.descend(batch_rows(trajectories), loss_of, STEPS, watch.made, watch.asks_to_stop)
    turns = [turn for each in trajectories for turn in each.turns]
    return sum(turn.end - turn.start for turn in turns if turn.is_trained)


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


def _require_used(settings: SFTSettings) -> None:
    """Raises UsageError if settings are given that an adapter on the head does not use."""
    section = "dpo" if isinstance(settings, DPOSettings) else "sft"
    usual = type(settings)()
    unused = [name for name in UNUSED if getattr(settings, name) != getattr(usual, name)]
    if unused:
        named = ", ".join(f"{section}.{name}" for name in unused)
        raise UsageError(
            f"An adapter on the LM head alone learns from all examples at once, in {STEPS} steps at most, and does not "
            f"use {named}: leave it out, or train all layers (--set lora.layers=all)."
        )
