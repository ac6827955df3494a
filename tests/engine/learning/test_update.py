"""An update, written down: targets worked by hand, and the gradient of every minibatch row by row."""

from __future__ import annotations

import dataclasses
import random

import pytest
import torch
from msgspec.structs import replace as replaced
from torch import Tensor, nn

from llamagym_tui.engine.learning.packing import Row, batch_rows, minibatches
from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.learning.targets import Targets
from llamagym_tui.engine.policy.episode import Episode
from llamagym_tui.engine.policy.sampler import Reply, Sampler
from llamagym_tui.engine.policy.trajectory import Trajectory
from llamagym_tui.engine.tokens.tokenization import Opening
from llamagym_tui.settings import PPOConfig
from tests.engine.conftest import REPLIES

STILL = PPOConfig(
    update_kl=1e9, lr=1e-12, lr_final=1e-12, value_lr=1e-12, epochs=1, mini_batch_size=1000, max_grad_norm=1e9,
    critic_warmup_updates=0, kl_coef=0.0, kl_coef_final=0.0, entropy_coef=0.0, entropy_coef_final=0.0,
)  # fmt: skip
"""Steps too small to change a weight: what an update finds can be found again after it."""


def played(policy, observations: str = "ab", *, prompt: str = "Play.", **turns: list) -> Trajectory:
    """An episode of canonical replies, stamped with the policy's own log-probabilities; `turns` replaces fields."""
    episode = Episode(policy, prompt)
    for at, observation in enumerate(observations):
        episode.observe(observation * (1 + 9 * at))
        ids = list(policy.chat.reply_ids(REPLIES[at % 2]))
        episode.reply(Reply(ids, [0.0] * len(ids), value=0.0, ended=True))
    trajectory = episode.finish("terminated")
    for segment in trajectory.segments:
        for at, turn in enumerate(segment.turns):
            fields = {name: values[at] for name, values in turns.items()}
            own = tuple(logprobs(policy, Row(segment, 0), at).tolist())
            segment.turns[at] = dataclasses.replace(turn, **{"logprobs": own} | fields)
    return trajectory


def outputs(policy, row: Row) -> tuple[Tensor, Tensor]:
    """Logits and values at each of a row's ids, by one plain forward; index at - 1 predicts id `at`."""
    shared = len(row.segment.prefix)
    whole = policy.model(torch.tensor([[*row.segment.prefix, *row.segment.ids]]))
    return whole.logits[0, shared:] / policy.generation.temperature, whole.values[0, shared:]


def logprobs(policy, row: Row, number: int) -> Tensor:
    turn = row.segment.turns[number]
    logits = outputs(policy, row)[0][turn.start - 1 : turn.end - 1]
    return (
        logits.log_softmax(-1)
        .gather(1, torch.tensor(row.segment.ids[turn.start : turn.end])[:, None])
        .squeeze(1)
    )


def written_down(policy, rows: list[Row], targets: Targets) -> tuple[Tensor, Tensor, Tensor]:
    """Means over trained turns of policy loss, value loss and action entropy, with nothing shared or batched."""
    losses = []
    for row in rows:
        logits, values = outputs(policy, row)
        for number, turn in enumerate(row.segment.turns):
            if not turn.is_trained:
                continue
            at = row.first_turn + number
            ratio = (logprobs(policy, row, number) - torch.tensor(turn.logprobs)).exp()
            gain = torch.minimum(
                ratio * targets.advantages[at], ratio.clamp(0.8, 1.2) * targets.advantages[at]
            )
            entropy = torch.zeros(())
            for branch in turn.branches:
                p = logits[turn.start + branch.at - 1, list(branch.children)].softmax(-1)
                entropy = entropy - (p * p.log()).sum()
            losses.append(
                (-gain.sum(), 0.5 * (values[turn.start - 1] - targets.returns[at]) ** 2, entropy)
            )
    return tuple(torch.stack(parts).mean() for parts in zip(*losses, strict=True))  # type: ignore[return-value]


def assert_gradient(model: nn.Module, loss: Tensor) -> None:
    """That the gradients which an update left are those of a loss."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    expected = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
    for parameter, gradient in zip(parameters, expected, strict=True):
        if gradient is None:
            assert parameter.grad is None
        else:
            assert parameter.grad is not None
            assert torch.allclose(
                parameter.grad, gradient, rtol=1e-3, atol=1e-4 * float(gradient.abs().max())
            )


def moves(parameter: nn.Parameter) -> bool:
    return parameter.grad is not None and bool(parameter.grad.any())


def mixed_batch(policy) -> list[Trajectory]:
    """Short and long episodes under two prompts; one turn is another's choice, and some ratios are past the clip."""
    batch = [
        played(policy, "ab", reward=[0.0, 1.0], value=[0.2, -0.3]),
        played(
            policy,
            "cde",
            reward=[0.5, -1.0, 0.0],
            value=[0.1, 0.0, 0.4],
            is_trained=[True, False, True],
        ),
        played(policy, "f", prompt="Play another, longer game.", reward=[-2.0], value=[0.3]),
        played(
            policy, "gh", prompt="Play another, longer game.", reward=[1.0, 3.0], value=[-0.5, 0.6]
        ),
    ]
    for n, segment in enumerate(segment for trajectory in batch for segment in trajectory.segments):
        for at, turn in enumerate(segment.turns):
            moved = tuple(p + 0.15 * ((at + n + i) % 5 - 2) for i, p in enumerate(turn.logprobs))
            segment.turns[at] = dataclasses.replace(turn, logprobs=moved)
    return batch


@pytest.mark.usefixtures("either_path")
@pytest.mark.parametrize("turns_a_step", [1000, 3])
def test_the_gradient_of_an_update_is_that_of_the_loss_written_down_row_by_row(
    make_policy, turns_a_step
):
    policy = make_policy(temperature=0.7)
    batch = mixed_batch(policy)
    config = replaced(
        STILL,
        mini_batch_size=turns_a_step,
        value_coef=0.3,
        entropy_coef=0.4,
        entropy_coef_final=0.4,
    )
    ppo = PPO(policy, config, seed=5)
    targets = ppo.targets(batch)
    ppo.update(batch)
    last = list(minibatches(batch_rows(batch), turns_a_step, random.Random(5)))[-1]
    policy_loss, value_loss, entropy = written_down(policy, last, targets)
    assert_gradient(policy.model.pretrained_model, policy_loss + 0.3 * value_loss - 0.4 * entropy)
    assert_gradient(policy.model.v_head, value_loss)


def test_a_minibatch_in_many_forwards_has_the_gradient_of_one(make_policy):
    def gradient(tokens: int, **settings) -> Tensor:
        policy = make_policy()
        ppo = PPO(policy, replaced(STILL, **settings), seed=3)
        ppo.steps.limits = ppo.steps.limits._replace(tokens=tokens)
        ppo.update(mixed_batch(policy))
        return torch.cat(
            [p.grad.flatten() for p in policy.model.parameters() if p.grad is not None]
        )

    joint = gradient(10_000)
    assert torch.allclose(gradient(1), joint, atol=1e-5 * float(joint.abs().max()))
    assert not torch.allclose(gradient(10_000, mini_batch_size=2), joint, rtol=1e-2)


def test_while_the_critic_warms_up_the_gradient_is_the_heads_alone(make_policy):
    policy = make_policy()
    batch = mixed_batch(policy)
    ppo = PPO(policy, replaced(STILL, critic_warmup_updates=1))
    targets = ppo.targets(batch)
    ppo.update(batch)
    assert not any(moves(p) for p in policy.model.pretrained_model.parameters())
    assert_gradient(policy.model.v_head, written_down(policy, batch_rows(batch), targets)[1])
    ppo.update(batch)
    assert any(moves(p) for p in policy.model.pretrained_model.parameters())


def test_targets_of_a_terminated_and_a_truncated_episode_are_those_worked_by_hand(make_policy):
    policy = make_policy()
    nn.init.zeros_(policy.model.v_head.out.weight)
    nn.init.constant_(policy.model.v_head.out.bias, 2.0)
    ended, cut_off = (played(policy, reward=[0.0, 1.0], value=[0.5, 0.25]) for _ in range(2))
    # Only what was truncated is bootstrapped, whatever else there is: V(final observation) is 2 everywhere here.
    first = ended.segments[0]
    ended.final_prompt = cut_off.final_prompt = Opening(first.prefix, tuple(first.ids))
    cut_off.end = "truncated"
    ppo = PPO(policy, replaced(STILL, gamma=0.9, lam=0.5, whiten_advantages=False))
    targets = ppo.targets([ended, cut_off])
    # delta_0 = 0.9*0.25 - 0.5 = -0.275; delta_1 = 1 - 0.25, or 1 + 0.9*2 - 0.25; A_0 = delta_0 + 0.9*0.5*delta_1
    assert targets.advantages.tolist() == pytest.approx([0.0625, 0.75, 0.8725, 2.55])
    assert targets.returns.tolist() == pytest.approx([0.5625, 1.0, 1.3725, 2.8])


def test_advantages_are_whitened_over_the_trained_turns_of_all_episodes_and_returns_are_not(
    make_policy,
):
    policy = make_policy()
    batch = [played(policy, "a", reward=[1.0]), played(policy, "b", reward=[3.0])]
    batch += [played(policy, "c", reward=[100.0], is_trained=[False])]
    targets = PPO(policy, STILL).targets(batch)
    assert targets.advantages[:2].tolist() == pytest.approx([-1.0, 1.0], abs=1e-4)
    assert targets.returns.tolist() == [1.0, 3.0, 100.0]


def test_figures_of_an_update_are_those_worked_by_hand(make_policy):
    policy = make_policy()
    batch = [
        played(policy, "a", reward=[1.0], parse_failed=[True]),
        *(played(policy, "b", reward=[3.0]) for _ in range(3)),
    ]
    for trajectory in batch:
        (turn,) = trajectory.segments[0].turns
        raised = tuple(p + 0.3 for p in turn.logprobs)
        trajectory.segments[0].turns[0] = dataclasses.replace(turn, logprobs=raised)
    stats = PPO(policy, replaced(STILL, parse_penalty=0.5)).update(batch)
    # Every ratio is exp(-0.3) = 0.7408, past the clip of 0.8; k3 = 0.7408 - 1 + 0.3
    assert stats.first_ratio == pytest.approx(0.2592, abs=1e-3)
    assert stats.clip_fraction == 1.0
    assert stats.approx_kl == pytest.approx(0.0408, abs=1e-3)
    # Returns 1, 3, 3, 3: variance (1.5² + 3 · 0.5²) / 4 = 0.75
    assert stats.return_std == pytest.approx(0.75**0.5)
    assert (stats.mean_return, stats.parse_failure_rate) == (2.5, 0.25)
    assert (stats.episodes, stats.turns) == (4, 4)


def test_policy_and_value_head_are_clipped_each_and_the_figure_is_the_norm_before(make_policy):
    policy = make_policy()
    batch = mixed_batch(policy)
    before = PPO(policy, STILL).update(batch).grad_norm
    assert before > 1e-3
    assert PPO(policy, replaced(STILL, max_grad_norm=1e-3)).update(
        batch
    ).grad_norm == pytest.approx(before, rel=1e-3)
    for part in (policy.model.pretrained_model, policy.model.v_head):
        norms = torch.stack([p.grad.norm() for p in part.parameters() if p.grad is not None])
        assert norms.norm().item() == pytest.approx(1e-3, rel=1e-2)


def test_scored_play_has_a_first_ratio_of_one_and_a_kl_to_the_reference_of_zero_at_first(
    make_policy,
):
    policy = make_policy(policy="score", normalization="token")
    sampler, batch = Sampler(policy), []
    opening = policy.chat.opening("Play.", "Your total: 12.")
    for _ in range(4):
        for reply in sampler.reply([opening] * 8):
            episode = Episode(policy, "Play.")
            episode.observe("Your total: 12.")
            episode.reply(reply)
            episode.reward(float(reply.choice.chosen))
            batch.append(episode.finish("terminated"))
    config = PPOConfig(critic_warmup_updates=0, epochs=4, mini_batch_size=32)
    first = PPO(policy, config).update(batch)
    assert first.first_ratio < 1e-4
    assert first.kl_ref == pytest.approx(0.0, abs=1e-5)
    assert first.approx_kl > 1e-6
