"""One PPO update: exact ratios, an honest reference, and a policy that moves the right way."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from msgspec.structs import replace as replaced

from llamagym_tui.engine.learning.checkpoint import load_checkpoint, save_checkpoint
from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.policy.episode import Episode
from llamagym_tui.engine.policy.sampler import Sampler
from llamagym_tui.engine.policy.trajectory import Trajectory
from llamagym_tui.settings import PPOConfig, UpdateStats

QUICK = PPOConfig(
    lr=3e-3,
    epochs=2,
    mini_batch_size=16,
    critic_warmup_updates=0,
    kl_coef=0.05,
    entropy_coef=0.0,
    update_kl=1e9,
)


def collect(
    policy, episodes: int = 32, turns: int = 2, prompts: tuple[str, ...] = ("Play.",)
) -> list[Trajectory]:
    """Episodes of a bandit: a reply earns 1 if its number of tokens is odd."""
    sampler = Sampler(policy)
    made = [Episode(policy, prompts[n % len(prompts)]) for n in range(episodes)]
    for turn in range(turns):
        fed = [episode.observe(f"Turn {turn}. Slot {slot}.") for slot, episode in enumerate(made)]
        for episode, reply in zip(made, sampler.reply(fed), strict=True):
            episode.reply(reply)
            episode.reward(float(len(reply.ids) % 2))
    return [episode.finish("terminated") for episode in made]


def weights(policy) -> torch.Tensor:
    return torch.cat(
        [
            p.detach().flatten()
            for p in policy.model.pretrained_model.parameters()
            if p.requires_grad
        ]
    )


@pytest.mark.parametrize("lora", [False, True])
def test_the_first_ratio_is_one_and_the_policy_moves(make_policy, lora):
    policy = make_policy(lora=lora, temperature=0.8)
    ppo, before = PPO(policy, QUICK), weights(policy)
    stats = ppo.update(collect(policy, prompts=("Play.", "Play another, longer game.")))
    assert stats.first_ratio < 1e-3
    assert stats.approx_kl > 0
    assert stats.grad_norm > 0
    assert not torch.equal(before, weights(policy))
    assert policy.version == ppo.updates == 1


@pytest.mark.parametrize("lora", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_kl_to_the_reference_starts_at_zero_and_grows_with_training(make_policy, lora):
    policy = make_policy(lora=lora, temperature=0.7)
    ppo = PPO(policy, replaced(QUICK, lr=1e-2, lr_final=1e-2))
    assert abs(ppo.update(collect(policy)).kl_ref) < 1e-5
    assert ppo.update(collect(policy)).kl_ref > 1e-3


def test_rewarded_replies_become_more_probable(make_policy):
    policy = make_policy(max_new_tokens=1)
    ppo = PPO(policy, replaced(QUICK, lr=1e-2, kl_coef=0.0, kl_coef_final=0.0))
    target = policy.chat.tokenizer.convert_tokens_to_ids("<|end|>")

    def rewarded() -> list[Trajectory]:
        trajectories = collect(policy, episodes=64, turns=1)
        for trajectory in trajectories:
            segment = trajectory.segments[0]
            hit = segment.ids[segment.turns[0].start] % 2 == target % 2
            segment.turns[0] = dataclasses.replace(segment.turns[0], reward=float(hit))
        return trajectories

    first = ppo.update(rewarded()).mean_return
    for _ in range(6):
        last = ppo.update(rewarded()).mean_return
    assert last > first + 0.3


def test_the_penalty_for_unreadable_replies_is_in_the_target_and_not_in_the_return(make_policy):
    policy = make_policy()
    trajectory = collect(policy, episodes=1, turns=1)[0]
    segment = trajectory.segments[0]
    segment.turns[0] = dataclasses.replace(segment.turns[0], reward=1.0, parse_failed=True)
    ppo = PPO(policy, replaced(QUICK, parse_penalty=0.25))
    targets = ppo.targets([trajectory])
    assert targets.returns.tolist() == pytest.approx([0.75], abs=1e-4)
    assert trajectory.episode_return == 1.0


def test_kl_is_charged_to_the_turn_that_spent_it(make_policy):
    policy = make_policy()
    ppo = PPO(
        policy, replaced(QUICK, kl_coef=2.0, kl_coef_final=2.0, gamma=0.0, whiten_advantages=False)
    )
    (trajectory,) = collect(policy, episodes=1, turns=2)
    segment = trajectory.segments[0]
    spent = []
    for at, by in enumerate((0.1, 0.3)):
        dearer = tuple(logprob + by for logprob in segment.turns[at].logprobs)
        segment.turns[at] = dataclasses.replace(segment.turns[at], logprobs=dearer)
        spent.append(by * len(dearer))
    targets = ppo.targets([trajectory])
    assert targets.kl_ref.tolist() == pytest.approx(spent, abs=1e-3)
    assert targets.returns[1].item() == pytest.approx(
        segment.turns[1].reward - 2.0 * spent[1], abs=1e-2
    )


def test_critic_warm_up_changes_the_value_head_alone(make_policy):
    policy = make_policy()
    before, head = weights(policy), policy.model.v_head.out.weight.detach().clone()
    stats = PPO(policy, replaced(QUICK, critic_warmup_updates=1)).update(collect(policy))
    assert stats.lr == 0
    assert torch.equal(before, weights(policy))
    assert not torch.equal(head, policy.model.v_head.out.weight)


def test_a_non_finite_step_is_skipped_and_counted(make_policy):
    policy = make_policy()
    trajectories = collect(policy)
    segment = trajectories[0].segments[0]
    segment.turns[0] = dataclasses.replace(segment.turns[0], reward=math.inf)
    before = weights(policy)
    config = replaced(QUICK, whiten_advantages=False, mini_batch_size=32, epochs=1)
    stats = PPO(policy, config).update(trajectories)
    assert stats.skipped_steps == 1, "of two, the one with that turn"
    assert not torch.equal(before, weights(policy))


@pytest.mark.parametrize("lora", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_checkpoint_brings_back_weights_optimizer_and_randomness(make_policy, tmp_path, lora):
    policy = make_policy(lora=lora, seed=1)
    ppo = PPO(policy, QUICK, seed=1)
    ppo.update(collect(policy))
    save_checkpoint(tmp_path, policy, ppo, {"episodes": 32})
    other = make_policy(lora=lora, seed=2)
    resumed = PPO(other, QUICK, seed=2)
    assert load_checkpoint(tmp_path, other, resumed).counters == {"episodes": 32}
    assert torch.equal(weights(policy), weights(other))
    one, two = ppo.update(collect(policy)), resumed.update(collect(other))
    assert one.policy_loss == pytest.approx(two.policy_loss, abs=1e-6)
    assert one.kl_ref == pytest.approx(two.kl_ref, abs=1e-6) != 0
    assert other.version == policy.version == 2
    assert torch.allclose(weights(policy), weights(other), atol=1e-6)


def test_an_update_of_a_rate_that_is_far_too_large_stays_near(make_policy):
    """At the same rate of 0.03 and the same batch: as it is given, and with steps that follow the KL."""
    far = replaced(QUICK, lr=3e-2, lr_final=3e-2, epochs=4, update_kl=1e9)

    def updated(config: PPOConfig) -> tuple[PPO, UpdateStats]:
        policy = make_policy()
        ppo = PPO(policy, config, seed=1)
        return ppo, ppo.update(collect(policy))

    _, given = updated(far)
    ppo, followed = updated(replaced(far, update_kl=0.02))
    assert given.lr == 3e-2
    assert followed.lr < 3e-3
    assert followed.approx_kl < given.approx_kl / 10
    # The factor is in the state, from which a resumed run goes on.
    assert ppo.state.pace == pytest.approx(followed.lr / 3e-2)
    other = PPO(make_policy(), far)
    other.restore(ppo.state, ppo.tensors)
    assert other.state.pace == ppo.state.pace
