"""The replay buffer: what it keeps, and what imitating it adds to an update."""

from __future__ import annotations

import random

import pytest
import torch
from msgspec.structs import replace as replaced

from llamagym_tui.engine.learning.batch import Row, batch_rows
from llamagym_tui.engine.learning.checkpoint import keep_checkpoint, load_checkpoint, roll_back, save_checkpoint
from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.learning.replay_buffer import ReplayBuffer
from llamagym_tui.engine.policy.trajectory import Trajectory
from tests.engine.learning.test_update import STILL, assert_gradient, played, written_down

IMITATING = replaced(STILL, replay_episodes=8, replay_coef=0.5)


def won(policy, observation: str, episode_return: float = 1.0) -> Trajectory:
    return played(policy, observation, reward=[episode_return])


def kept(buffer: ReplayBuffer) -> list[Trajectory]:
    return list(buffer.kept.values())


def surprise(policy, row: Row, temperature: float = 1.0) -> torch.Tensor:
    """Cross-entropy of a row's only reply, by one plain forward."""
    turn = row.segment.turns[0]
    whole = policy.model(torch.tensor([[*row.segment.prefix, *row.segment.ids]])).logits[0, len(row.segment.prefix) :]
    reply = torch.tensor(row.segment.ids[turn.start : turn.end])
    return torch.nn.functional.cross_entropy(whole[turn.start - 1 : turn.end - 1] / temperature, reply, reduction="sum")


def test_episodes_from_the_threshold_on_are_kept(make_policy):
    policy, buffer = make_policy(), ReplayBuffer()
    batch = [won(policy, "a", 0.9), won(policy, "b", 1.0), won(policy, "c", -1.0), won(policy, "d", 2.0)]
    buffer.add(batch, min_return=1.0, size=8)
    assert kept(buffer) == [batch[1], batch[3]]


def test_the_oldest_make_room_and_one_that_comes_again_is_the_newest(make_policy):
    policy, buffer = make_policy(), ReplayBuffer()
    a, b, c = (won(policy, name) for name in "abc")
    buffer.add([a, b], min_return=1.0, size=2)
    again = won(policy, "a")
    buffer.add([again, c], min_return=1.0, size=2)
    assert kept(buffer) == [again, c]


def test_an_episode_in_which_someone_else_had_a_hand_is_not_kept(make_policy):
    policy, buffer = make_policy(), ReplayBuffer()
    buffer.add([played(policy, "ab", reward=[0.0, 1.0], is_trained=[True, False])], min_return=1.0, size=8)
    assert not len(buffer)


def test_an_episode_that_the_fallback_action_helped_to_win_is_not_kept(make_policy):
    policy, buffer = make_policy(), ReplayBuffer()
    buffer.add([played(policy, "ab", reward=[0.0, 1.0], parse_failed=[True, False])], min_return=1.0, size=8)
    assert not len(buffer), "it would teach to name no action"


def test_a_pass_goes_over_every_kept_row_once(make_policy):
    policy, buffer = make_policy(), ReplayBuffer()
    buffer.add([won(policy, name) for name in "abcde"], min_return=1.0, size=8)
    parts = buffer.parts(2, 100, random.Random(0))
    assert sorted(map(len, parts)) == [2, 3]
    assert sorted(row.first_turn for part in parts for row in part) == [0, 1, 2, 3, 4]


def test_of_a_large_buffer_a_step_takes_no_more_turns_than_a_minibatch_has(make_policy):
    policy, buffer = make_policy(), ReplayBuffer()
    buffer.add([played(policy, name * 2, reward=[0.0, 1.0]) for name in "abcdef"], min_return=1.0, size=8)
    assert [len(part) for part in buffer.parts(2, 5, random.Random(0))] == [2, 2]
    assert [len(part) for part in buffer.parts(2, 1, random.Random(0))] == [1, 1], "a row is kept whole"


def test_the_loss_is_the_mean_cross_entropy_of_kept_replies(make_policy):
    policy = make_policy(temperature=0.7)
    batch = [won(policy, "a"), won(policy, "b", 3.0), won(policy, "d", -1.0)]
    rows = batch_rows(batch)
    expected = (surprise(policy, rows[0], 0.7) + surprise(policy, rows[1], 0.7)) / 2
    stats = PPO(policy, IMITATING).update(batch)
    assert stats.replay_loss == pytest.approx(float(expected.detach()), rel=1e-5)
    assert stats.replay_episodes == 2


def test_the_gradient_is_that_of_ppo_and_of_the_weighted_cross_entropy(make_policy):
    policy = make_policy()
    batch = [won(policy, "a"), won(policy, "b", -1.0)]
    ppo = PPO(policy, IMITATING)
    targets = ppo.targets(batch, rows := batch_rows(batch))
    ppo.update(batch)
    policy_loss, value_loss, _ = written_down(policy, rows, targets)
    assert_gradient(policy.model.pretrained_model, policy_loss + 0.5 * value_loss + 0.5 * surprise(policy, rows[0]))
    assert_gradient(policy.model.v_head, value_loss)


@pytest.mark.parametrize("off", [{"replay_coef": 0.0}, {"replay_episodes": 0}, {"replay_min_return": 9.0}])
def test_without_weight_size_or_success_an_update_is_the_same_bit_for_bit(make_policy, off):
    weights = []
    for config in (STILL, replaced(IMITATING, **off)):
        policy = make_policy()
        batch = [won(policy, name, (-1.0) ** at) for at, name in enumerate("abcdef")]
        moving = replaced(config, lr=1e-2, lr_final=1e-2, value_lr=1e-2, epochs=2, mini_batch_size=2)
        PPO(policy, moving, seed=3).update(batch)
        weights.append([weight.detach().clone() for weight in policy.model.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*weights, strict=True))


def test_kept_replies_become_more_probable(make_policy):
    policy = make_policy()
    batch = [won(policy, name) for name in "abcd"]
    before = [float(surprise(policy, row).detach()) for row in batch_rows(batch)]
    moving = replaced(IMITATING, lr=1e-2, lr_final=1e-2, mini_batch_size=2, replay_coef=1.0)
    ppo = PPO(policy, moving)
    ppo.replay.add(batch, min_return=1.0, size=8)
    for _ in range(3):
        ppo.update([won(policy, "z", 0.0)])
    after = [float(surprise(policy, row).detach()) for row in batch_rows(batch)]
    assert all(late < early - 0.5 for early, late in zip(before, after, strict=True))


def test_nothing_is_imitated_while_the_critic_is_trained_alone(make_policy):
    policy = make_policy()
    stats = PPO(policy, replaced(IMITATING, critic_warmup_updates=1)).update([won(policy, "a")])
    assert (stats.replay_loss, stats.replay_episodes) == (0.0, 1)


def test_the_buffer_comes_back_from_a_checkpoint_and_is_empty_after_a_roll_back(make_policy, tmp_path):
    policy = make_policy()
    ppo = PPO(policy, IMITATING)
    ppo.update([won(policy, "a"), won(policy, "b")])
    save_checkpoint(tmp_path, policy, ppo, {})
    keep_checkpoint(tmp_path)
    resumed = PPO(policy, IMITATING)
    load_checkpoint(tmp_path, policy, resumed)
    assert list(resumed.replay.kept.items()) == list(ppo.replay.kept.items()) != []
    roll_back(tmp_path, policy, resumed)
    assert not len(resumed.replay)
    assert resumed.update([won(policy, "c")]).replay_episodes == 1


def test_a_reply_that_was_chosen_by_score_is_imitated_as_a_choice(make_policy):
    from llamagym_tui.engine.policy.episode import Episode
    from llamagym_tui.engine.policy.sampler import Sampler

    policy = make_policy(policy="score")
    episode = Episode(policy, "Play.")
    sampler, prompt = Sampler(policy, 1), episode.observe("a")
    assert prompt.restart is not None
    sampler.restart(0, prompt.restart)
    [reply] = sampler.reply([0], [prompt.ids])
    episode.reply(reply)
    episode.reward(1.0)
    assert reply.choice is not None
    stats = PPO(policy, IMITATING).update([episode.finish("terminated")])
    assert stats.replay_loss == pytest.approx(-reply.choice.logprob, rel=1e-4)
