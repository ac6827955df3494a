"""Actions that take several steps of the environment, from its info to the trajectory."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from llamagym_tui.agents.kitchen import KitchenAgent, least_steps
from llamagym_tui.engine.learning.rewards import discounted_returns
from llamagym_tui.engine.llamagym_loop import LlamaGymLoop
from llamagym_tui.engine.policy.trajectory import Turn
from llamagym_tui.game.observed import action_steps
from llamagym_tui.setup.run_config import run_config
from tests.toy_env import CountAgent


class SlowAgent(CountAgent):
    """Its first action takes one step, its second two, and so on."""

    env_kwargs = {"length": 3}  # noqa: RUF012
    named = staticmethod(lambda count: {"action_steps": count})

    def wrap_env(self, env):
        step = env.unwrapped.step
        env.unwrapped.step = lambda action: (*(found := step(action))[:4], self.named(found[0]))
        return env


def steps_of(make_rollout, agent: CountAgent) -> list[int]:
    rollout, warnings = make_rollout(agent, batch_turns=3)
    while not rollout.batch_ready:
        rollout.step()
    assert not warnings
    return [turn.steps for turn in rollout.take_batch()[0].turns]


def test_a_turn_keeps_how_many_steps_its_action_took_and_without_a_word_it_took_one(make_rollout):
    assert steps_of(make_rollout, SlowAgent()) == [1, 2, 3]
    assert steps_of(make_rollout, CountAgent()) == [1, 1]


def test_what_is_no_number_of_steps_drops_the_episode(make_rollout, monkeypatch):
    monkeypatch.setattr(SlowAgent, "named", staticmethod(lambda count: {"action_steps": "two"}))
    rollout, warnings = make_rollout(SlowAgent(), n_envs=1)
    rollout.step()
    assert rollout.failures.dropped == 1
    assert "LlamaCount-v0 failed on" in warnings[0]


@pytest.mark.parametrize(
    ("named", "steps"), [(4, 4), (0, 1), (-3, 1), (2.0, 2), (10**30, 1_000_000)]
)
def test_numbers_of_steps_are_whole_and_within_reason(named, steps):
    assert action_steps({"action_steps": named}) == steps


def test_llamagyms_loop_reads_them_from_the_info_of_a_step(make_policy):
    loop = SimpleNamespace(
        slots=[SimpleNamespace(took_turn=True, is_trained=True, rewards=[])], _many=False
    )
    kept = []
    loop.slots[0].episode = SimpleNamespace(
        turns=1, reward=lambda reward, **more: kept.append((reward, more["steps"]))
    )
    LlamaGymLoop.assign_reward(loop, 2.0, {"action_steps": 5})
    LlamaGymLoop.assign_reward(loop, 1.0, None)
    assert kept == [(2.0, 5), (1.0, 1)]


def test_a_turn_of_an_older_checkpoint_took_one_step():
    import msgspec

    turn = Turn(start=0, end=1, logprobs=(0.0,), value=0.0, reward=1.0)
    written = {key: value for key, value in msgspec.to_builtins(turn).items() if key != "steps"}
    assert msgspec.convert(written, Turn) == turn


def test_time_counts_in_the_discount_of_the_kitchens_runs(make_rollout, monkeypatch):
    assert run_config("kitchen").ppo.gamma == 0.99
    agent = KitchenAgent()
    rollout, _ = make_rollout(agent, n_envs=1, batch_turns=1)
    monkeypatch.setattr(
        KitchenAgent,
        "extract_action",
        lambda self, reply: agent.expert(rollout.slots[0].env.unwrapped.state.number),
    )
    rollout.begin_episodes()
    begun = rollout.slots[0].env.unwrapped.state
    while not rollout.batch_ready:
        rollout.step()
    (trajectory,) = rollout.take_batch()[:1]
    steps = [turn.steps for turn in trajectory.turns]
    assert sum(steps) == least_steps()[begun]
    rewards = [turn.reward for turn in trajectory.turns]
    by_hand = sum(reward * 0.5 ** sum(steps[:at]) for at, reward in enumerate(rewards))
    assert discounted_returns(trajectory, 0.5)[-1] == pytest.approx(by_hand)
