"""Our GRPO beside TRL's own on one batch: the same conversations, returns and log-probabilities, two trainers."""

from __future__ import annotations

import copy
import dataclasses
import random
from pathlib import Path
from statistics import pstdev, stdev
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor

from llamagym_tui.engine.learning.figures import UpdateSums
from llamagym_tui.engine.learning.packing import batch_rows
from llamagym_tui.engine.learning.ppo import learner_for
from llamagym_tui.engine.policy.episode import Episode
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.sampler import Reply
from llamagym_tui.engine.policy.trajectory import Trajectory
from llamagym_tui.engine.ranks import ALONE
from tests.engine.learning.test_naive_updates import logprobs_of
from tests.engine.learning.test_update import STILL

REPLIES = ('{"action": 1}', 'I take it. {"action": 1}', "?")
"""Of three lengths; the last names no action."""
GROUP = 4
TURNS = (1, 3, 2, 1, 2, 1, 1, 4)
"""Of the episodes, two groups of which follow each other."""
MOST_TOKENS = 256
"""Of a completion, by which TRL's `dr_grpo` divides."""


def batch_of(policy: Policy) -> list[Trajectory]:
    """Whole conversations, whose log-probabilities are so far from the policy's that some ratios are clipped."""
    rng = random.Random(3)
    batch = []
    for number, turns in enumerate(TURNS):
        episode = Episode(policy, "Play.")
        for at in range(turns):
            episode.observe(f"You see {'ab'[number // GROUP]}{at}.")
            said = rng.randrange(len(REPLIES))
            ids = list(policy.chat.reply_ids(REPLIES[said]))
            episode.reply(Reply(ids, [0.0] * len(ids), value=0.0, ended=True))
            episode.reward(rng.choice([-1.0, 0.0, 1.5]), parse_failed=said == 2)
        batch.append(episode.finish("terminated"))
        batch[-1].group = number // GROUP
        (segment,) = batch[-1].segments  # what TRL has as one completion
        for at, turn in enumerate(segment.turns):
            own = logprobs_of(policy, segment, at).tolist()
            old = tuple(each + rng.uniform(-0.4, 0.4) for each in own)
            segment.turns[at] = dataclasses.replace(turn, logprobs=old)
    return batch


def of_trl(
    policy: Policy,
    batch: list[Trajectory],
    returns: list[float],
    factors: list[float],
    folder: Path,
    **settings: Any,
) -> tuple[float, dict[str, Tensor]]:
    """TRL's loss and gradient of a batch, where the advantage of each episode is taken times a factor."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    model = copy.deepcopy(policy.model.pretrained_model)
    names = ("prompt_ids", "completion_ids", "logprobs", "env_mask")
    played: dict[str, list[Any]] = {name: [] for name in names}
    for trajectory in batch:
        (segment,) = trajectory.segments
        first, after = segment.turns[0].start, segment.turns[-1].end
        old = [0.0] * len(segment.ids)
        for turn in segment.turns:
            old[turn.start : turn.end] = turn.logprobs
        played["prompt_ids"].append([*segment.prefix, *segment.ids[:first]])
        played["completion_ids"].append(segment.ids[first:after])
        played["logprobs"].append(old[first:after])
        played["env_mask"].append([int(each) for each in segment.mask[first:after]])
    prompts = [{"prompt": f"seed {trajectory.group}"} for trajectory in batch]
    trainer = GRPOTrainer(
        model, lambda returns, **_: returns, train_dataset=Dataset.from_list(prompts),
        args=GRPOConfig(
            output_dir=str(folder), num_generations=GROUP, per_device_train_batch_size=len(batch), use_cpu=True,
            bf16=False, gradient_checkpointing=False, save_strategy="no", report_to="none", beta=0.0, epsilon=0.2,
            max_completion_length=MOST_TOKENS, **settings,
        ),
        processing_class=policy.chat.tokenizer, rollout_func=lambda prompts, trainer: {**played, "returns": returns},
    )  # fmt: skip
    trainer.current_gradient_accumulation_steps = 1
    model.train()
    inputs = trainer._generate_and_score_completions(prompts)
    width = inputs["completion_ids"].shape[1]
    # TRL itself takes those of now where a batch is used once, so nothing would be clipped.
    inputs["old_per_token_logps"] = torch.tensor(
        [each + [0.0] * (width - len(each)) for each in played["logprobs"]]
    )
    inputs["advantages"] = inputs["advantages"] * torch.tensor(factors)
    loss = trainer.compute_loss(model, inputs)
    loss.backward()
    return float(loss.detach()), {name: each.grad for name, each in model.named_parameters()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ours", "trls", "is_divided", "counts_tokens"),
    [
        ({}, {"loss_type": "grpo", "scale_rewards": "group"}, True, True),
        ({"correct_spread": True}, {"loss_type": "grpo", "scale_rewards": "none"}, False, True),
        ({"correct_length": True}, {"loss_type": "dr_grpo", "scale_rewards": "group"}, True, False),
        (
            {"correct_spread": True, "correct_length": True},
            {"loss_type": "dr_grpo", "scale_rewards": "none"},
            False,
            False,
        ),
    ],
    ids=["grpo", "spread", "length", "dr_grpo"],
)
def test_grpo_is_trls_but_for_factors_that_are_known(
    make_policy, tmp_path, ours, trls, is_divided, counts_tokens
) -> None:
    """Of an episode of L turns and T tokens in a group of G, in a batch of E episodes with K turns:

    TRL's `grpo` has a mean over E of the means over T, ours a mean over E of the means over L of sums over tokens: T/L.
    TRL's `dr_grpo` divides the sum of all tokens by E times the most tokens that a completion has, ours by K.
    TRL divides by the standard deviation that estimates (G - 1), plus 1e-4; ours by the group's own (G).
    """
    policy = make_policy(replies=list(REPLIES[:2]))
    config = replace(STILL, learner="grpo", **ours)
    batch = batch_of(policy)
    returns = [
        sum(turn.reward - config.parse_penalty * turn.parse_failed for turn in each.turns)
        for each in batch
    ]
    factors = []
    for number, trajectory in enumerate(batch):
        if counts_tokens:
            (segment,) = trajectory.segments
            factors.append(sum(segment.mask) / len(trajectory.turns))
        else:
            factors.append(len(batch) * MOST_TOKENS / sum(TURNS))
        if is_divided:
            first = number // GROUP * GROUP
            group = returns[first : first + GROUP]
            factors[-1] *= (stdev(group) + 1e-4) / pstdev(group)
    assert len(set(factors)) > 1 or not (is_divided or counts_tokens)
    wanted, gradients = of_trl(policy, batch, returns, factors, tmp_path, **trls)

    learner: Any = learner_for(policy, config, 5, ALONE)
    rows = batch_rows(batch)
    sums = UpdateSums()
    targets = learner.targets(batch, rows)
    loss = sum(
        learner.loss(part, targets, sums, is_first=True) / sum(TURNS)
        for part in learner.packed(rows)
    )
    loss.backward()
    assert float(sums.clipped) > 0, "a batch in which nothing is clipped"
    assert float(loss.detach()) == pytest.approx(wanted, rel=1e-5)
    for name, each in policy.model.pretrained_model.named_parameters():
        assert float((each.grad - gradients[name]).norm()) < 1e-5 * float(gradients[name].norm())
