"""What the state says about the action, and what groups teach: figures worked by hand, and by a plain forward."""

from __future__ import annotations

import math

import pytest
import torch
from msgspec.structs import replace

from llamagym_tui.config import PPOConfig
from llamagym_tui.engine.learning.packing import batch_rows
from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.learning.scoring import reply_logprobs
from llamagym_tui.engine.learning.update_stats import action_information, design_effect
from llamagym_tui.engine.policy.episode import Episode
from llamagym_tui.engine.policy.sampler import Sampler
from tests.engine.learning.test_update import STILL, outputs, played
from tests.fake_parts import made_up_stats


def information(*turns: dict[int, float]) -> float:
    """Of turns by the probability of each action, each turn a part of its own."""
    return action_information([
        (torch.tensor([[*turn, -1]]), torch.tensor([[*turn.values(), 0.0]])) for turn in turns
    ])  # fmt: skip


def test_the_information_is_how_much_less_undecided_the_policy_is_where_it_knows_the_state() -> (
    None
):
    assert information({5: 1.0}, {7: 1.0}) == pytest.approx(math.log(2))
    assert information({5: 0.9, 7: 0.1}, {5: 0.9, 7: 0.1}, {7: 0.1, 5: 0.9}) == 0.0
    assert information({5: 1.0}, {5: 1.0}, {5: 1.0}) == 0.0
    # H(3/4, 1/4) - (0 + ln 2) / 2
    mean = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert information({5: 1.0}, {5: 0.5, 7: 0.5}) == pytest.approx(mean - math.log(2) / 2)
    assert information() == 0.0


@pytest.mark.usefixtures("either_path")
def test_the_information_of_sampled_tokens_is_that_of_where_replies_part(make_policy) -> None:
    policy = make_policy(temperature=0.7)
    batch = [played(policy, "ab"), played(policy, "cde", is_trained=[True, False, True])]
    shares = []
    for row in batch_rows(batch):
        logits, _ = outputs(policy, row)
        for turn in row.segment.turns:
            if turn.is_trained:
                branch = turn.branches[0]
                place = logits[turn.start + branch.at - 1, list(branch.children)]
                shares.append(dict(zip(branch.children, place.softmax(-1).tolist(), strict=True)))
    found = PPO(policy, STILL).update(batch).action_information
    assert len(shares) == 4
    assert found == pytest.approx(information(*shares), abs=1e-5)
    assert found > 1e-4


def test_the_information_of_choices_is_that_of_the_softmax_over_scores(make_policy) -> None:
    policy = make_policy(policy="score", temperature=0.7)
    sampler, batch, shares = Sampler(policy), [], []
    for number in range(4):
        episode = Episode(policy, "Play.")
        prompt = episode.observe(f"You see {number}.")
        scores = reply_logprobs(policy, [prompt], policy.trie)[0] / 0.7
        shares.append(dict(enumerate(scores.softmax(-1).tolist())))
        episode.reply(sampler.reply([prompt])[0])
        batch.append(episode.finish("terminated"))
    found = PPO(policy, STILL).update(batch).action_information
    assert found == pytest.approx(information(*shares), abs=1e-5)
    assert found > 1e-4


def test_groups_that_agree_and_turns_that_no_group_teaches_are_counted(make_policy) -> None:
    policy = make_policy()
    rewards = [[1.0], [3.0], [2.0, 0.0], [1.0, 1.0], [7.0]]
    batch = [played(policy, "ab"[: len(each)], reward=each) for each in rewards]
    for trajectory, group in zip(batch, [4, 4, 5, 5, 6], strict=True):
        trajectory.group = group
    stats = PPO(policy, PPOConfig(learner="rloo")).update(batch)
    # spreads 1, 0 and 0 of an episode alone; 2 of 7 turns are in the group that differs
    assert stats.group_spread == pytest.approx(1 / 3)
    assert stats.flat_groups == pytest.approx(2 / 3)
    assert stats.idle_share == pytest.approx(5 / 7)
    # The mean is 3; sums above it by seed -2, -2, 4: 24 / 2 * 3/5, over a variance of 22 / 4.
    assert stats.design_effect == pytest.approx(7.2 / 5.5)
    spread = (22 / 5) ** 0.5
    assert stats.return_stderr == pytest.approx(spread * (7.2 / 5.5 / 4) ** 0.5)


@pytest.mark.parametrize(
    ("returns", "seeds", "stderr"),
    [
        # the seeds' means 1 and 3 have a standard deviation of sqrt(2), over sqrt(2) of them
        ([1.0, 1.0, 3.0, 3.0], [0, 0, 1, 1], 1.0),
        # means 1, 2, 6: deviations -2, -1, 3, so sqrt(14 / 2 / 3)
        ([0.0, 2.0, 1.0, 3.0, 5.0, 7.0], [0, 0, 1, 1, 2, 2], (7 / 3) ** 0.5),
        ([1.0, 1.0, 3.0, 3.0], [None] * 4, (1 / 3) ** 0.5),
        ([1.0, 1.0, 3.0, 3.0], [0, 1, 2, 3], (1 / 3) ** 0.5),
        # seeds that differ less than chance would have it tell no more than others
        ([1.0, 3.0, 1.0, 3.0], [0, 0, 1, 1], (1 / 3) ** 0.5),
        # of one seed all together say what one episode does
        ([1.0, 3.0], [0, 0], 2**0.5),
        ([5.0], [0], 0.0),
        ([2.0, 2.0, 2.0, 2.0], [0, 0, 1, 1], 0.0),
    ],
)  # fmt: skip
def test_the_error_of_a_mean_return_is_that_of_the_seeds_means(returns, seeds, stderr) -> None:
    stats = made_up_stats(
        episodes=len(returns),
        return_std=float(torch.tensor(returns).std(unbiased=False)),
        design_effect=design_effect(returns, seeds),
    )
    assert stats.return_stderr == pytest.approx(stderr)


def test_what_is_seldom_tried_is_no_difference_between_episodes_and_each_turns_own(
    make_policy,
) -> None:
    policy = make_policy()
    batch = [played(policy, each, reward=[1.0]) for each in "aab"]
    for trajectory in batch:
        trajectory.group = 0
    config = replace(STILL, learner="grpo", novelty_coef=0.5)
    targets = PPO(policy, config).targets(batch, batch_rows(batch))
    # one prompt came twice, the other once: 1 / sqrt(n) less the mean
    each, alone = 2**-0.5, 1.0
    mean = (2 * each + alone) / 3
    wanted = [0.5 * (bonus - mean) for bonus in (each, each, alone)]
    assert targets.advantages.tolist() == pytest.approx(wanted)
    assert not targets.comparisons[0].teaches.any()
    returns = PPO(policy, replace(config, learner="reinforce")).targets(batch, batch_rows(batch))
    assert returns.advantages.tolist() == pytest.approx([1 + bonus for bonus in wanted])
