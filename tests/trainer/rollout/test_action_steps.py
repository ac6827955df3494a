"""Actions that take several steps of the environment, from its info to the trajectory."""

from __future__ import annotations

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
