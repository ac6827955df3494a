"""A person at the wheel of a rollout: what waits, what is said, what it is worth to the update."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest
import torch
from msgspec.structs import replace as replaced

from llamagym_tui.engine.learning.estimators.gae import batch_advantages
from llamagym_tui.engine.learning.packing import Row, batch_rows
from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.learning.trl_training import NOT_TRAINED, examples
from llamagym_tui.errors import ActionParseError, EnvError, UsageError
from llamagym_tui.protocol import events
from llamagym_tui.trainer.rollout.rollout import Rollout
from tests.engine.learning.test_update import STILL, logprobs, played
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


def act(
    rollout: Rollout, emitted: list[events.Event], action: int = 1, reasoning: str = ""
) -> list:
    """Answer the turn that waits, and let the step go on."""
    awaited = of(emitted, events.ActionAwaited)[-1]
    rollout.act(awaited.episode, awaited.turn, action, reasoning)
    return rollout.step()


def test_all_environments_wait_for_the_person_who_then_acts_in_the_agents_place(make_driven):
    rollout, emitted = make_driven()
    assert rollout.awaits_person
    assert rollout.step() == []
    assert rollout.env_steps == 0
    assert not of(emitted, events.TokensStreamed), "the reply that is not used is not streamed"
    assert of(emitted, events.WheelTaken)[0].choices == [("0", 0, "wait"), ("1", 1, "go")]
    act(rollout, emitted, reasoning="Why not?")
    assert rollout.env_steps == 3
    (awaited,), (turn,) = of(emitted, events.ActionAwaited), of(emitted, events.TurnFinished)
    assert (turn.reply, turn.action, turn.how) == ('Why not? {"action": 1}', 1, "human")
    assert (turn.replaced, turn.replaced_action) == (awaited.reply, awaited.action_name)


@pytest.mark.parametrize("lora", [False, True])
def test_after_a_persons_turn_the_ids_are_the_templates_and_the_policy_says_what_a_fresh_forward_says(
    make_driven, lora
):
    rollout, emitted = make_driven(lora=lora)
    act(rollout, emitted, reasoning="One more step is safe.")
    rollout.step()
    rollout.wheel.let_go()
    while not rollout.batch_ready:
        rollout.step()
    policy, batch = rollout.policy, rollout.take_batch()
    (trajectory,) = [trajectory for trajectory in batch if not trajectory.is_own]
    (segment,) = trajectory.segments
    first, *later = segment.turns
    said = 'One more step is safe. {"action": 1}'
    assert segment.ids[first.start : first.end] == list(policy.chat.reply_ids(said))
    before = [*segment.prefix, *segment.ids[: first.end]]
    opening = policy.chat.opening("Count.", "Steps: 0.")
    assert before == [*opening.prefix, *opening.rest, *policy.chat.reply_ids(said)]
    after = list(policy.chat.continuation("Steps: 1.", ended=True))
    assert segment.ids[first.end : later[0].start] == after
    assert [turn.is_trained for turn in segment.turns] == [False, True, True]
    for at in (1, 2):
        found = logprobs(policy, Row(segment, 0), at).detach()
        assert found.tolist() == pytest.approx(list(segment.turns[at].logprobs), abs=1e-5)
    for other in (other for other in batch if other.is_own):
        for at, turn in enumerate(other.turns):
            found = logprobs(policy, Row(other.segments[0], 0), at).detach()
            assert found.tolist() == pytest.approx(list(turn.logprobs), abs=1e-5)


def test_who_lets_go_leaves_the_turn_to_the_reply_that_the_agent_has_given(make_driven):
    rollout, emitted = make_driven()
    rollout.wheel.let_go()
    rollout.step()
    (awaited,), (turn,) = of(emitted, events.ActionAwaited), of(emitted, events.TurnFinished)
    assert (turn.reply, turn.replaced) == (awaited.reply, None)
    assert of(emitted, events.WheelLetGo) == [events.WheelLetGo()]
    fill(rollout)
    assert all(trajectory.is_own for trajectory in rollout.take_batch())


def test_who_lets_go_and_takes_the_wheel_again_gets_the_turn_that_waits(make_driven):
    rollout, emitted = make_driven()
    rollout.wheel.let_go()
    rollout.take_wheel()
    assert [type(event) for event in emitted[-3:]] == [
        events.WheelLetGo,
        events.WheelTaken,
        events.ActionAwaited,
    ]
    assert rollout.step() == []
    act(rollout, emitted)
    assert rollout.env_steps == 3


def test_the_wheel_stays_with_the_person_over_episodes_and_batches(make_driven):
    rollout, emitted = make_driven()
    for _ in range(3 * LONG):
        act(rollout, emitted)
        while not rollout.awaits_person:
            if rollout.batch_ready:
                rollout.take_batch()
            rollout.step()
    assert len({awaited.episode for awaited in of(emitted, events.ActionAwaited)}) == 4


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


def test_it_is_reported_even_if_something_else_is_watched_by_then(make_driven):
    rollout, emitted = make_driven()
    act(rollout, emitted)
    rollout.spectator.watch(1)
    rollout.keep_wheel_in_view()
    assert of(emitted, events.WheelLetGo)[0].reason == "another conversation is watched"
    fill(rollout)
    assert len(of(emitted, events.EpisodeCorrected)) == 1


def test_a_restart_lets_go_and_forgets_the_step_that_waited(make_driven):
    rollout, emitted = make_driven()
    rollout.restart()
    assert not rollout.awaits_person
    assert of(emitted, events.WheelLetGo)[0].reason == "the episodes under way were dropped"
    fill(rollout)


def test_an_episode_that_is_dropped_is_reported_as_far_as_a_person_has_acted_in_it(make_driven):
    rollout, emitted = make_driven()
    act(rollout, emitted)
    rollout.step()
    act(rollout, emitted)
    rollout.step()
    rollout.wheel.let_go()
    rollout.resize(2)
    (corrected,) = of(emitted, events.EpisodeCorrected)
    assert corrected.observations == ["Steps: 0.", "Steps: 1."], "the third one was not answered"
    assert [turn.replaced is not None for turn in corrected.turns] == [True, True]
    assert (corrected.finished.length, corrected.finished.end) == (2, "truncated")
    fill(rollout)
    assert len(of(emitted, events.EpisodeCorrected)) == 1


def test_what_a_person_did_in_an_environment_that_is_given_up_is_reported(make_driven):
    rollout, emitted = make_driven()
    rollout.wheel.let_go()
    rollout.spectator.watch(2)
    rollout.take_wheel()
    act(rollout, emitted)
    rollout.resize(1)
    (corrected,) = of(emitted, events.EpisodeCorrected)
    assert corrected.turns[-1].replaced is not None


def test_a_failure_elsewhere_that_is_watched_from_now_on_lets_go(make_driven):
    rollout, emitted = make_driven()
    rollout.spectator.watch_next("failure")
    act(rollout, emitted)
    assert rollout.spectator.env != 0, "the replies of a model that knows nothing name no action"
    assert of(emitted, events.WheelLetGo)[0].reason == "another conversation is watched"
    rollout.step()
    assert len(of(emitted, events.ActionAwaited)) == 1


def test_a_turn_that_still_waits_is_no_correction(make_driven):
    rollout, emitted = make_driven()
    rollout.restart()
    assert not of(emitted, events.EpisodeCorrected)


def test_a_turn_that_its_environment_fails_in_is_no_correction_and_the_turns_before_are_reported_once(
    make_driven,
):
    rollout, emitted = make_driven(n_envs=1)
    rollout.slots[0].env.unwrapped.step = fails = lambda action: 1 / 0
    act(rollout, emitted)
    assert of(emitted, events.EpisodeCorrected) == []
    rollout, emitted = make_driven(n_envs=1)
    act(rollout, emitted)
    rollout.step()
    rollout.slots[0].env.unwrapped.step = fails
    act(rollout, emitted)
    rollout.emit_corrections()
    [corrected] = of(emitted, events.EpisodeCorrected)
    assert [turn.replaced is not None for turn in corrected.turns] == [True]
    rollout.step()
    act(rollout, emitted)  # the person goes on, in the environment that was made anew
    assert of(emitted, events.WheelLetGo) == []


def test_in_inference_mode_the_person_acts_and_nothing_enters_a_batch(make_driven):
    rollout, emitted = make_driven()
    rollout.mode = "inference"
    act(rollout, emitted)
    for _ in range(LONG):
        rollout.step()
        act(rollout, emitted)
    assert {turn.how for turn in of(emitted, events.TurnFinished)} == {"human"}
    assert rollout.take_batch() == []


def test_an_episode_that_a_person_played_alone_is_not_in_the_batch(make_driven):
    rollout, emitted = make_driven()
    for _ in range(LONG):
        act(rollout, emitted)
        rollout.step()
    rollout.wheel.let_go()
    fill(rollout)
    assert all(trajectory.is_own for trajectory in rollout.take_batch())


def test_what_cannot_be_done_is_refused_and_the_turn_still_waits(make_driven):
    rollout, _ = make_driven()
    with pytest.raises(UsageError, match="does not wait"):
        rollout.act(0, 1, 1)
    with pytest.raises(UsageError, match="no action 7"):
        rollout.act(0, 0, 7)
    rollout.agent.extract_action = lambda reply: 0 if "wait" in reply else 1
    with pytest.raises(ActionParseError, match="would read wait, not go"):
        rollout.act(0, 0, 1, reasoning="To wait is no use.")
    assert rollout.awaits_person
    rollout.spectator.watch_next("best")
    assert rollout.wheel.env == 0, "no episode has ended, so the play is watched on"


def test_actions_that_no_key_can_name_are_refused(make_policy):
    class Continuous(CountAgent):
        env_id = "Pendulum-v1"

    rollout = Rollout(Continuous(), make_policy(), n_envs=1, max_turns=3, batch_turns=3, seed=1)
    with pytest.raises(EnvError, match="only discrete actions"):
        rollout.take_wheel()


def test_where_the_wheel_is_held_there_is_nothing_to_probe_between_reply_and_action(make_driven):
    rollout, _ = make_driven()
    assert rollout.pending_prompt() is None


# What it is worth


def test_a_persons_turn_hands_no_credit_to_the_turns_before_it():
    # A_2 = 3 - 0.4; A_0 = 0.5 + 0.9 · 0.2 - 0.3, and nothing of what came after the person acted
    rewards, values = torch.tensor([0.5, 1.0, 3.0]), torch.tensor([0.3, 0.2, 0.4])
    ends, own = torch.ones(3, dtype=torch.bool), torch.tensor([True, False, True])
    found = batch_advantages(rewards, values, ends, [3], [0.0], gamma=0.9, lam=0.8, trained=own)
    assert found.advantages[[0, 2]].tolist() == pytest.approx([0.38, 2.6])
    assert found.returns[[0, 2]].tolist() == pytest.approx([0.68, 3.0])


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


def test_no_figure_counts_a_persons_turn_or_the_return_of_its_episode(make_policy):
    policy = make_policy()
    batch = [
        played(policy, "a", reward=[1.0], parse_failed=[True]),
        played(policy, "b", reward=[0.0]),
        played(
            policy, "cd", reward=[0.0, 9.0], is_trained=[True, False], parse_failed=[False, True]
        ),
    ]
    ppo = PPO(policy, replaced(STILL, kl_coef=0.1, reward_scale=None))
    stats = ppo.update(batch)
    assert (stats.mean_return, stats.return_std) == (0.5, 0.5)
    assert stats.parse_failure_rate == pytest.approx(1 / 3)
    assert (stats.episodes, stats.turns) == (3, 3)
    assert stats.tokens == 2 * len(policy.chat.reply_ids('{"action": 0}')) + len(
        batch[2].turns[0].logprobs
    )
    assert stats.kl_ref == pytest.approx(0.0, abs=1e-6)
    assert ppo.return_moments.turns == 2
    (row,) = [row for row in batch_rows(batch) if not row.segment.turns[-1].is_trained]
    assert sum(row.segment.mask) == len(row.segment.turns[0].logprobs)


def test_supervised_training_on_a_correction_has_loss_on_the_persons_turns_alone(make_policy):
    policy = make_policy()
    conversation = [
        {"role": "system", "content": "Count."},
        {"role": "user", "content": "Steps: 0."},
        {"role": "assistant", "content": '{"action": 0}', "weight": 0},
        {"role": "user", "content": "Steps: 1."},
        {"role": "assistant", "content": 'Now. {"action": 1}'},
    ]
    (row,) = examples(policy, conversation)
    learnt = [label for label in row.labels if label != NOT_TRAINED]
    assert learnt == list(policy.chat.reply_ids('Now. {"action": 1}'))
    plain = [{key: message[key] for key in ("role", "content")} for message in conversation]
    assert row.input_ids == examples(policy, plain)[0].input_ids
    assert examples(policy, conversation[:3]) == []


def test_a_turn_in_which_a_person_acted_stays_one_in_a_run_that_goes_on(make_driven):
    rollout, emitted = make_driven()
    act(rollout, emitted)
    rollout.step()
    other, reported = make_driven()
    other.restart()
    assert other.restore(msgspec.to_builtins(rollout.state())) == 0
    assert other.slots[0].counts.is_corrected
    fill(other)
    (corrected,) = of(reported, events.EpisodeCorrected)
    assert [turn.replaced is not None for turn in corrected.turns] == [True, False, False]
    trajectory = next(
        each for each in other.take_batch() if each.episode == corrected.finished.episode
    )
    assert [turn.is_trained for turn in trajectory.turns] == [False, True, True]
