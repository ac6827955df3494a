"""Turns and tokens as steps that have values and advantages, worked by hand."""

from __future__ import annotations

import pytest
import torch

from llamagym_tui.engine.learning.batch import Steps, credited_steps
from llamagym_tui.engine.learning.estimators import batch_advantages
from llamagym_tui.engine.learning.targets import turn_sums
from llamagym_tui.engine.policy.trajectory import Choice, Turn

NO_KL = torch.zeros(3)


def a_turn(tokens: int, value: float, **fields) -> Turn:
    return Turn(
        start=1, end=1 + tokens, logprobs=(-0.5,) * tokens, value=value, reward=0.0, **fields
    )


TURNS = [a_turn(2, 0.5), a_turn(1, 1.0)]
REWARDS, VALUES = torch.tensor([1.0, 2.0]), torch.tensor([0.5, 0.25, 1.0])


def token_steps(
    turns: list[Turn], rewards: torch.Tensor, kl: torch.Tensor, values: torch.Tensor
) -> Steps:
    return credited_steps(
        turns, [len(turn.decision_logprobs) for turn in turns], rewards, kl, values
    )


def turn_steps(turns: list[Turn], rewards: torch.Tensor) -> Steps:
    values = torch.tensor([turn.value for turn in turns])
    return credited_steps(turns, [1] * len(turns), rewards, torch.zeros(len(turns)), values)


def advantages(steps: Steps, bootstrap: float = 0.0) -> list[float]:
    return batch_advantages(
        *steps[:3], [len(steps.rewards)], [bootstrap], gamma=0.5, lam=0.5
    ).tolist()


def test_a_turns_reward_lands_on_its_last_token_and_each_token_pays_its_own_kl():
    steps = token_steps(TURNS, REWARDS, torch.tensor([0.1, 0.2, 0.3]), VALUES)
    assert steps.rewards.tolist() == pytest.approx([-0.1, 0.8, 1.7])
    assert steps.moves.tolist() == [0, 1, 1]


def test_discount_and_lambda_apply_between_turns_and_not_inside_a_reply():
    # A_2 = 2 - 1; A_1 = (1 + 0.5 * 1 - 0.25) + 0.25 * A_2; A_0 = (0.25 - 0.5) + A_1
    assert advantages(token_steps(TURNS, REWARDS, NO_KL, VALUES)) == pytest.approx([1.25, 1.5, 1.0])


def test_each_step_of_the_environment_is_discounted_at_the_end_of_its_turn():
    turns = [a_turn(2, 0.5, steps=3), a_turn(1, 1.0)]
    assert turn_steps(turns, REWARDS).moves.tolist() == [3, 1]
    assert token_steps(turns, REWARDS, NO_KL, VALUES).moves.tolist() == [0, 3, 1]
    # A_2 = 2 - 1; A_1 = (1 + 0.125 * 1 - 0.25) + 0.125 * 0.5 * A_2; A_0 = (0.25 - 0.5) + A_1
    assert advantages(token_steps(turns, REWARDS, NO_KL, VALUES)) == [0.6875, 0.9375, 1.0]


def test_a_truncated_episode_is_bootstrapped_after_its_last_token():
    # A_2 = 2 + 0.5 * 2 - 1; A_1 = 1.25 + 0.25 * A_2; A_0 = A_1 - 0.25
    assert advantages(token_steps(TURNS, REWARDS, NO_KL, VALUES), bootstrap=2.0) == pytest.approx(
        [1.5, 1.75, 2.0]
    )


def test_the_first_token_of_a_reply_has_the_advantage_that_its_turn_would_have():
    of_tokens, of_turns = (
        advantages(token_steps(TURNS, REWARDS, NO_KL, VALUES)),
        advantages(turn_steps(TURNS, REWARDS)),
    )
    assert [of_tokens[0], of_tokens[2]] == pytest.approx(of_turns)


def test_a_turn_that_someone_else_chose_is_one_step_with_the_value_of_its_prompt():
    turns = [a_turn(2, 0.5), a_turn(7, 1.0, is_trained=False)]
    steps = token_steps(turns, REWARDS, NO_KL, VALUES)
    assert steps.trained.tolist() == [True, True, False]
    assert advantages(steps) == pytest.approx([1.25, 1.5, 1.0])


def test_a_reply_that_was_chosen_whole_is_one_decision():
    choice = Choice(0, -0.7, replies=((7, 8), (9,)), divisors=(1.0, 1.0))
    turns = [a_turn(2, 0.5, choice=choice), a_turn(1, 1.0)]
    values = torch.tensor([0.5, 1.0])
    assert turns[0].decision_logprobs == (-0.7,)
    assert advantages(token_steps(turns, REWARDS, NO_KL[:2], values)) == advantages(
        turn_steps(turns, REWARDS)
    )


def test_no_advantage_leaks_into_the_episode_before():
    steps = token_steps(TURNS, REWARDS, NO_KL, VALUES)
    found = batch_advantages(*steps[:3], [2, 1], [0.0, 0.0], gamma=0.5, lam=0.5)
    # The first episode ends with its second token: A_1 = 1 - 0.25, A_0 = 0.25 - 0.5 + A_1
    assert found.tolist() == pytest.approx([0.5, 0.75, 1.0])


def test_errors_of_a_turns_tokens_weigh_as_much_as_one_of_a_turn():
    assert token_steps(TURNS, REWARDS, NO_KL, VALUES).weights.tolist() == [0.5, 0.5, 1.0]
    assert turn_sums(TURNS, torch.tensor([0.1, 0.2, 0.3])).tolist() == pytest.approx([0.3, 0.3])
