"""A person at the wheel of a rollout: what waits, what is said, what it is worth to the update."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from msgspec.structs import replace as replaced

from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.protocol import events
from llamagym_tui.trainer.rollout.rollout import Rollout
from tests.engine.learning.test_update import STILL, played
from tests.toy_env import CountAgent
from tests.trainer.rollout.test_rollout import fill

LONG = 3


class LongAgent(CountAgent):
    """Episodes of three turns."""

    env_kwargs = {"length": LONG}  # noqa: RUF012


@pytest.fixture
def make_driven(make_policy):
    """A rollout whose first environment waits for a person."""

    def make(agent=None, *, lora: bool = False, **changes) -> tuple[Rollout, list[events.Event]]:
        emitted: list[events.Event] = []
        settings = {"n_envs": 3, "max_turns": 9, "batch_turns": 6, "seed": 1} | changes
        rollout = Rollout(
            agent or LongAgent(), make_policy(lora=lora), emit=emitted.append, **settings
        )
        rollout.take_wheel()
        assert rollout.step() == []
        return rollout, emitted

    return make


def of(emitted: list[events.Event], kind: type) -> list:
    return [event for event in emitted if isinstance(event, kind)]


def act(rollout: Rollout, emitted: list[events.Event], action: int = 1) -> list:
    """Answer the turn that waits, and let the step go on."""
    awaited = of(emitted, events.ActionAwaited)[-1]
    rollout.act(awaited.episode, awaited.turn, action)
    return rollout.step()


def test_all_environments_wait_for_the_person_who_then_acts_in_the_agents_place(make_driven):
    rollout, emitted = make_driven()
    assert rollout.awaits_person
    assert rollout.step() == []
    assert rollout.env_steps == 0
    assert not of(emitted, events.TokensStreamed), "the reply that is not used is not streamed"
    assert of(emitted, events.WheelTaken)[0].choices == [("0", 0, "wait"), ("1", 1, "go")]
    act(rollout, emitted)
    assert rollout.env_steps == 3
    (awaited,), (turn,) = of(emitted, events.ActionAwaited), of(emitted, events.TurnFinished)
    assert (turn.reply, turn.action, turn.how) == ('{"action": 1}', 1, "human")
    assert (turn.replaced, turn.replaced_action) == (awaited.reply, awaited.action_name)


def test_who_lets_go_leaves_the_turn_to_the_reply_that_the_agent_has_given(make_driven):
    rollout, emitted = make_driven()
    rollout.wheel.let_go()
    rollout.step()
    (awaited,), (turn,) = of(emitted, events.ActionAwaited), of(emitted, events.TurnFinished)
    assert (turn.reply, turn.replaced) == (awaited.reply, None)
    assert of(emitted, events.WheelLetGo) == [events.WheelLetGo()]
    fill(rollout)
    assert all(trajectory.is_own for trajectory in rollout.take_batch())


def test_an_episode_with_a_persons_turn_is_reported_whole_at_its_end_and_marked(make_driven):
    rollout, emitted = make_driven()
    act(rollout, emitted)
    rollout.step()
    rollout.wheel.let_go()
    ended = [episode for _ in range(2) for episode in rollout.step()]
    assert [episode.is_corrected for episode in ended] == [True, False, False]
    (corrected,) = of(emitted, events.EpisodeCorrected)
    assert corrected.observations == ["Steps: 0.", "Steps: 1.", "Steps: 2."]
    assert [turn.replaced is not None for turn in corrected.turns] == [True, False, False]
    assert corrected.finished.episode_return == 1.0


def test_a_restart_lets_go_and_forgets_the_step_that_waited(make_driven):
    rollout, emitted = make_driven()
    rollout.restart()
    assert not rollout.awaits_person
    assert of(emitted, events.WheelLetGo)[0].reason == "the episodes under way were dropped"
    fill(rollout)


# What it is worth


def test_an_update_is_the_same_whatever_the_person_said_of_it_and_earned_by_it(make_policy):
    weights = []
    moving = replaced(
        STILL, lr=1e-2, lr_final=1e-2, value_lr=1e-2, epochs=2, entropy_coef=0.1, kl_coef=0.2
    )
    for reward, logprob, parse_failed in ((0.0, -0.1, False), (50.0, -9.0, True)):
        policy = make_policy()
        batch = [
            played(policy, "ab", reward=[0.0, 1.0], value=[0.2, -0.3]),
            played(
                policy,
                "cde",
                reward=[0.5, 0.0, 1.0],
                value=[0.1, 0.3, 0.4],
                is_trained=[True, False, True],
            ),
        ]
        turns = batch[1].segments[0].turns
        changed = (logprob,) * len(turns[1].logprobs)
        turns[1] = dataclasses.replace(
            turns[1], reward=reward, logprobs=changed, parse_failed=parse_failed
        )
        PPO(policy, moving, seed=3).update(batch)
        weights.append(
            torch.cat([weight.detach().flatten() for weight in policy.model.parameters()])
        )
    assert torch.equal(*weights)
