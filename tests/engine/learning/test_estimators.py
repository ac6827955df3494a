"""Advantages without a critic, worked by hand."""

from __future__ import annotations

from typing import get_args

import pytest
import torch

from llamagym_tui.engine.learning.estimators import ESTIMATORS, Batch, Estimate
from llamagym_tui.settings import LEARNERS, LearnerName, PPOConfig

WITHOUT_CRITIC = [name for name, facts in LEARNERS.items() if not facts.has_critic]


def estimated(
    learner: LearnerName,
    episodes: list[list[float]],
    *,
    seeds: list[int | None] | None = None,
    observations: list[int] | None = None,
    others: tuple[int, ...] = (),
    charges: list[float] | None = None,
    **settings,
) -> Estimate:
    """Of episodes by their rewards; `others` are the steps that someone else took. Values and bootstraps are not 0."""
    rewards = [reward for episode in episodes for reward in episode]
    penalties = torch.tensor(charges or [0.0] * len(rewards))
    batch = Batch(
        rewards=torch.tensor(rewards) - penalties,
        values=torch.full((len(rewards),), 9.0),
        moves=torch.ones(len(rewards), dtype=torch.int64),
        trained=torch.tensor([at not in others for at in range(len(rewards))]),
        charges=penalties,
        lengths=[len(episode) for episode in episodes],
        bootstraps=[5.0] * len(episodes),
        seeds=seeds or [0] * len(episodes),
        observations=[str(at) for at in observations or range(len(rewards))],
    )
    return ESTIMATORS[learner](batch, PPOConfig(learner=learner, **settings))


def test_every_learner_has_a_name_an_estimator_and_facts() -> None:
    assert get_args(LearnerName) == tuple(LEARNERS) == tuple(ESTIMATORS)


@pytest.mark.parametrize(
    ("learner", "settings", "wanted"),
    [
        ("reinforce", {}, [3, 2, 0, 4]),
        ("reinforce", {"gamma": 0.5}, [2, 2, 0, 4]),
        # mean 9/4, squares (0.75, 0.25, 2.25, 1.75) sum to 8.75
        ("rebn", {}, [0.507093, -0.169031, -1.521278, 1.183216]),
        ("rloo", {}, [1, 1, -3.5, 2.5]),  # returns 3, 0, 4; the others have means 2, 3.5, 1.5
        # mean 7/3, standard deviation sqrt(26/9); lengths 2, 1, 1 have the mean 4/3
        ("grpo", {}, [0.261488, 0.261488, -1.830413, 1.307438]),
        ("grpo", {"correct_spread": True}, [0.444444, 0.444444, -3.111111, 2.222222]),
        ("grpo", {"correct_length": True}, [0.392232, 0.392232, -1.372813, 0.980581]),
        ("grpo", {"correct_spread": True, "correct_length": True}, [2 / 3, 2 / 3, -7 / 3, 5 / 3]),
    ],
)  # fmt: skip
def test_advantages_are_those_worked_by_hand(learner, settings, wanted) -> None:
    found = estimated(learner, [[1.0, 2.0], [0.0], [4.0]], **settings)
    assert found.advantages.tolist() == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize("divided", [True, False])
def test_gigpo_compares_episodes_that_began_alike_and_turns_on_one_observation(divided) -> None:
    found = estimated(
        "gigpo",
        [[1.0, 2.0], [0.0], [0.0, 4.0]],
        observations=[0, 1, 2, 0, 1],
        correct_spread=not divided,
    )
    # Episodes 0 and 2 began alike, with returns 3 and 4; turns 0 and 3 have the same, turns 1 and 4 have 2 and 4.
    wanted = [-1 - 1, -1 - 1, 0, 1 + 1, 1 + 1] if divided else [-1, -0.5 - 1, 0, 1, 0.5 + 1]
    assert found.advantages.tolist() == pytest.approx(wanted, abs=1e-5)
    assert [each.peers for each in found.comparisons] == [
        "episodes that began alike",
        "turns on its observation",
    ]


@pytest.mark.parametrize("learner", ["rloo", "grpo"])
def test_episodes_are_compared_with_those_of_their_seed_alone(learner) -> None:
    found = estimated(
        learner, [[1.0], [3.0], [9.0], [9.0], [5.0], [7.0]], seeds=[4, 4, 7, 7, 8, None]
    )
    # a group that agrees, an episode alone in its group, and one of which nothing is known teach nothing
    size = 2.0 if learner == "rloo" else 1.0
    assert found.advantages.tolist() == pytest.approx([-size, size, 0, 0, 0, 0])
    (group,) = found.comparisons
    assert group.groups.tolist() == [0, 0, 1, 1, 2, -1]
    assert group.sizes.tolist() == [2, 2, 1]
    assert group.spreads.tolist() == [1, 0, 0]


def test_large_returns_that_are_equal_up_to_rounding_teach_nothing() -> None:
    ways = [[-100.1, 0.1, 0.2], [0.2, 0.1, -100.1], [0.1, -100.1, 0.2]]
    assert not estimated("grpo", ways).advantages.any()


@pytest.mark.parametrize("learner", WITHOUT_CRITIC)
def test_turns_before_one_that_someone_else_took_teach_nothing(learner) -> None:
    def found(others_reward: float, *, took: bool) -> list[float]:
        episodes = [[1.0, others_reward, 2.0], [5.0, 1.0, 0.0]]
        others = (1,) if took else ()
        return estimated(
            learner, episodes, others=others, observations=[0, 1, 2, 0, 1, 2]
        ).advantages.tolist()

    assert found(0.0, took=True)[:2] == [0.0, 0.0]
    # what they earned makes no difference, as it would if the policy had earned it
    assert found(0.0, took=True) == found(50.0, took=True)
    assert found(0.0, took=False) != found(50.0, took=False)


@pytest.mark.parametrize("learner", ["rloo", "grpo", "gigpo"])
def test_each_turn_pays_its_own_kl_after_the_comparison(learner) -> None:
    rewards, seen = [[1.0, 0.0], [1.0, 0.0]], [0, 1, 0, 1]
    found = estimated(learner, rewards, observations=seen, charges=[0.3, 0.0, -0.1, 0.2])
    # equal returns teach nothing, however the KL differs
    assert found.advantages.tolist() == pytest.approx([-0.3, 0.0, 0.1, -0.2])


@pytest.mark.parametrize("learner", ["reinforce", "rebn"])
def test_the_kl_is_part_of_a_return(learner) -> None:
    found = estimated(learner, [[1.0, 0.0]], charges=[0.0, 0.25])
    assert found.returns.tolist() == pytest.approx([0.75, -0.25])
