"""Settings that follow from the first batch, worked by hand."""

from __future__ import annotations

import pytest

from llamagym_tui.engine.learning.measured_settings import measured_novelty, measured_settings
from llamagym_tui.engine.policy.trajectory import Segment, Trajectory, Turn
from llamagym_tui.settings import MEASURED, RunConfig, flat


def an_episode(turns: int, total: float = 0.0, steps: int = 1, earlier: int = 0) -> Trajectory:
    each = [
        Turn(start=0, end=1, logprobs=(0.0,), value=0.0, reward=total / turns, steps=steps)
        for _ in range(turns)
    ]
    return Trajectory([Segment((), turns=each[earlier:])], "terminated", earlier=each[:earlier])


def values(*episodes: Trajectory) -> dict[str, object]:
    return {
        name.removeprefix("ppo."): found.value
        for name, found in measured_settings(episodes).items()
    }


@pytest.mark.parametrize("turns", [1, 2, 12])
def test_short_episodes_keep_exactly_the_defaults(turns: int):
    found = measured_settings([an_episode(turns, 1.0), an_episode(turns, -1.0)])
    assert tuple(found) == MEASURED
    defaults = flat(RunConfig(agent="", run_dir=""))
    assert {name: each.value for name, each in found.items()} == {
        name: defaults[name] for name in MEASURED
    }


def test_without_a_critic_no_episode_is_cut_off_and_there_is_no_lambda():
    found = measured_settings([an_episode(40)], has_critic=False)
    assert (found["ppo.lam"].value, found["ppo.whole_episodes"].value) == (1.0, True)
    assert found["ppo.gamma"].value == measured_settings([an_episode(40)])["ppo.gamma"].value


def test_where_one_episode_is_long_waiting_has_its_price_and_no_more_changes():
    found = values(*[an_episode(2, 1.0)] * 10, an_episode(13))
    assert found["gamma"] == 0.98
    assert (found["lam"], found["batch_size"], found["whole_episodes"]) == (1.0, 1024, True)


def test_long_episodes_are_discounted_and_cut_and_a_batch_is_several_times_as_long():
    # 200 turns on average: a discount of 1 - 1/200. 8 * 200 turns, in whole 256s, are less than 32 each of 64
    # environments.
    assert values(an_episode(100, 40.0), an_episode(300, 60.0, earlier=40)) == {
        "gamma": 0.995,
        "lam": 0.95,
        "reward_scale": None,
        "batch_size": 2048,
        "whole_episodes": False,
        "n_envs": 64,
    }


@pytest.mark.parametrize(
    ("turns", "gamma", "size"),
    [(13, 0.98, 2048), (87, 0.989, 2048), (300, 0.997, 2560), (5000, 0.999, 8192)],
)
def test_neither_looks_ahead_too_short_nor_waits_too_long(turns: int, gamma: float, size: int):
    found = values(an_episode(turns))
    assert (found["gamma"], found["batch_size"]) == (gamma, size)


def test_the_discount_looks_ahead_in_steps_of_the_environment_the_batch_counts_turns():
    found = measured_settings([an_episode(20, steps=5)])
    assert found["ppo.gamma"] == (
        0.99,
        "discount 0.99: episodes have 20 turns on average",
    )
    assert found["ppo.batch_size"].value == 2048


def test_a_batch_that_is_played_slowly_is_smaller():
    # 90 s at 10 turns a second are 900 turns, in whole 64s 896; however slow, a batch has 64.
    for turns_per_s, size in [(10.0, 896), (0.1, 64), (23.0, 2048)]:
        found = measured_settings([an_episode(20)], turns_per_s)["ppo.batch_size"]
        assert found.value == size
    assert measured_settings([an_episode(20)], 10.0)["ppo.batch_size"].reason == (
        "batch size 896: as many turns as are played in some 90 s"
    )


@pytest.mark.parametrize("turns", [2, 200])
def test_rewards_are_scaled_where_returns_are_large_or_spread_widely(turns: int):
    assert values(an_episode(turns, 12.0), an_episode(turns, -12.0))["reward_scale"] is None
    assert values(an_episode(turns, -10.0))["reward_scale"] is None
    assert values(an_episode(turns, 9.0), an_episode(turns, -9.0))["reward_scale"] == 1.0


def test_each_has_its_reason():
    reasons = [
        found.reason
        for found in measured_settings([an_episode(87, 20.0), an_episode(87, 0.0)]).values()
    ]
    assert reasons == [
        "discount 0.989: episodes have 87 turns on average",
        "lambda 0.95: episodes are long",
        "running reward scale: returns are 10 on average and spread by 10",
        "batch size 2,048: 23.5 times an episode's turns",
        "updates come in the middle of episodes: episodes are long",
        "64 environments: episodes are long",
    ]


@pytest.mark.parametrize(
    ("prompts", "coef"),
    [
        ((7, 7, 7, 7, 7, 8), 0.3),  # six turns, two prompts
        ((7, 7, 8, 8, 9, 9), 0.0),  # six turns, three
    ],
)
def test_what_is_seldom_tried_earns_a_bonus_only_where_prompts_come_again(prompts, coef):
    turn = Turn(start=1, end=2, logprobs=(0.0,), value=0.0, reward=0.0)
    segments = [Segment((), [prompt, 1], [turn]) for prompt in prompts]
    assert measured_novelty([Trajectory(segments, "terminated")], 0.3).value == coef
