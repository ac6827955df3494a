"""The bonus for what is seldom tried, worked by hand."""

from __future__ import annotations

import pytest

from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.learning.rewards import Novelty
from llamagym_tui.engine.policy.trajectory import Segment, Trajectory, Turn
from llamagym_tui.settings import PPOConfig


def episode(*pairs: tuple[int, int], is_trained: bool = True) -> Trajectory:
    """Turns as (prompt, reply), a segment each, of one token each."""
    segments = []
    for prompt, reply in pairs:
        turn = Turn(start=1, end=2, logprobs=(-0.5,), value=0.0, reward=-1.0, is_trained=is_trained)
        segments.append(Segment((9,), [prompt, reply], [turn]))
    return Trajectory(segments, "terminated")


def test_bonuses_fall_with_the_root_of_the_count_and_their_mean_is_taken_off():
    found = Novelty().bonuses([episode((1, 5), (1, 5), (1, 5), (1, 5), (2, 5))])
    # the reply 5 to the prompt 1 was given four times: 1/2 each; to the prompt 2 once: 1; their mean is 3/5
    assert found.tolist() == pytest.approx([-0.1] * 4 + [0.4])


def test_counts_go_on_from_batch_to_batch_and_what_others_chose_is_not_counted():
    novelty = Novelty()
    novelty.bonuses([episode((1, 5), (1, 5), (1, 5))])
    foreign = episode((1, 5), (7, 7), is_trained=False)
    found = novelty.bonuses([foreign, episode((1, 5), (1, 6))])
    assert found.tolist() == pytest.approx([0.0, 0.0, -0.25, 0.25])


def test_where_nothing_comes_twice_there_is_no_bonus():
    assert Novelty().bonuses([episode((1, 5), (2, 5), (3, 6))]).tolist() == [0.0, 0.0, 0.0]


def test_beyond_the_most_that_is_kept_all_count_as_new(monkeypatch):
    monkeypatch.setattr("llamagym_tui.engine.learning.rewards.MOST_KNOWN", 1)
    novelty = Novelty()
    found = novelty.bonuses([episode((1, 5), (1, 5), (1, 5), (1, 5), (2, 5), (2, 5))])
    assert found.tolist() == pytest.approx([-1 / 6] * 4 + [1 / 3] * 2)
    assert len(novelty.counts) == 1


def test_a_learner_adds_it_to_rewards_by_its_weight_and_goes_on_with_its_counts(make_policy):
    config = PPOConfig(
        kl_coef=0.0, kl_coef_final=0.0, novelty_coef=0.5, whiten_advantages=False, reward_scale=3.0
    )
    batch = [episode((1, 5)), episode((1, 5)), episode((2, 5))]
    learner = PPO(make_policy(), config)
    plain = PPO(make_policy(), PPOConfig(kl_coef=0.0, kl_coef_final=0.0, reward_scale=3.0))
    returns = learner.targets(batch).returns
    bonuses = Novelty().bonuses(batch)
    assert (returns - plain.targets(batch).returns).tolist() == pytest.approx(
        (0.5 * bonuses).tolist(), abs=1e-6
    )
    assert not plain.state.counts
    other = PPO(make_policy(), config)
    other.restore(learner.state, learner.tensors)
    expected = learner.targets(batch).returns.tolist()
    assert other.targets(batch).returns.tolist() == expected
