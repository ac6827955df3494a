"""An update, written down: targets worked by hand, and the gradient of every minibatch row by row."""

from __future__ import annotations

import dataclasses
import math
import random

import pytest
import torch
from msgspec.structs import asdict
from msgspec.structs import replace as replaced
from torch import Tensor, nn

from llamagym_tui.config import FIGURES_OF_A_RUN, PPOConfig
from llamagym_tui.engine.learning.losses import PolicyLoss
from llamagym_tui.engine.learning.packing import Row, batch_rows, minibatches
from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.learning.targets import Targets
from llamagym_tui.engine.learning.update_stats import UpdateSums, update_stats
from llamagym_tui.engine.policy.decisions import Decisions
from llamagym_tui.engine.policy.episode import Episode
from llamagym_tui.engine.policy.sampler import Reply, Sampler
from llamagym_tui.engine.policy.trajectory import Choice, Segment, Trajectory, Turn
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


def kl_in_loss(policy, rows: list[Row], targets: Targets) -> Tensor:
    """Mean over trained turns of the k3 estimate of the KL to the reference."""
    kl = []
    for row in rows:
        at = row.first_decision
        for number, turn in enumerate(row.segment.turns):
            decisions, at = (
                slice(at, at + len(turn.decision_logprobs)),
                at + len(turn.decision_logprobs),
            )
            if turn.is_trained:
                away = targets.reference_logprobs[decisions] - logprobs(policy, row, number)
                kl.append((away.exp() - 1 - away).sum())
    return torch.stack(kl).mean()


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
    targets = ppo.targets(batch, batch_rows(batch))
    ppo.update(batch)
    last = list(minibatches(batch_rows(batch), turns_a_step, random.Random(5)))[-1]
    policy_loss, value_loss, entropy = written_down(policy, last, targets)
    assert_gradient(policy.model.pretrained_model, policy_loss + 0.3 * value_loss - 0.4 * entropy)
    assert_gradient(policy.model.v_head, value_loss)


@pytest.mark.usefixtures("either_path")
def test_rows_that_are_equal_are_computed_once_and_have_the_gradient_of_the_computation_that_shares_nothing(
    make_policy, monkeypatch
):
    policy = make_policy(temperature=0.7)
    policy.history = 0
    batch = [
        played(policy, "aba", reward=[float(n), 1.0, -2.0], value=[0.1 * n, 0.0, 0.2])
        for n in range(6)
    ]
    batch += [played(policy, "ac", reward=[-1.0, 0.5], value=[0.3, 0.1])]
    config = replaced(STILL, value_coef=0.3, entropy_coef=0.4, entropy_coef_final=0.4)
    ppo, computed = PPO(policy, config, seed=5), []
    encode = policy.model.backbone.encode
    monkeypatch.setattr(
        policy.model.backbone,
        "encode",
        lambda ids, *rest: computed.append(ids.shape) or encode(ids, *rest),
    )
    rows = batch_rows(batch)
    targets = ppo.targets(batch, rows)
    ppo.update(batch)
    ends = {tuple(row.segment.ids[: row.segment.turns[0].end - 1]) for row in rows}
    assert (len(rows), len(ends)) == (20, 4)
    assert sum(trees * columns for trees, columns in computed[1:]) <= sum(map(len, ends)), (
        "the first is the prefix"
    )
    policy_loss, value_loss, entropy = written_down(policy, rows, targets)
    model = policy.model.pretrained_model
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    expected = torch.autograd.grad(policy_loss + 0.3 * value_loss - 0.4 * entropy, weights)
    found = torch.cat([weight.grad.flatten() for weight in weights if weight.grad is not None])
    gradient = torch.cat([each.flatten() for each in expected])
    assert float((found - gradient).norm() / gradient.norm()) < 1e-5


@pytest.mark.usefixtures("either_path")
@pytest.mark.parametrize("kl_form", ["reward", "loss"])
def test_with_token_credit_the_gradient_is_that_of_the_loss_written_down_token_by_token(
    make_policy, kl_form
):
    policy = make_policy(temperature=0.7)
    batch = mixed_batch(policy)
    ppo = PPO(
        policy,
        replaced(
            STILL, credit="token", value_coef=0.3, kl_coef=0.5, kl_coef_final=0.5, kl_form=kl_form
        ),
    )
    moved_reference(ppo)
    targets = ppo.targets(batch, rows := batch_rows(batch))
    ppo.update(batch)
    losses = []
    for row in rows:
        at, (_, values) = row.first_decision, outputs(policy, row)
        for number, turn in enumerate(row.segment.turns):
            decisions, at = (
                slice(at, at + len(turn.decision_logprobs)),
                at + len(turn.decision_logprobs),
            )
            if not turn.is_trained:
                continue
            now = logprobs(policy, row, number)
            ratio, advantages = (
                (now - torch.tensor(turn.logprobs)).exp(),
                targets.advantages[decisions],
            )
            gain = torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).sum()
            error = (
                0.5
                * (values[turn.start - 1 : turn.end - 1] - targets.returns[decisions])
                .square()
                .mean()
            )
            away = targets.reference_logprobs[decisions] - now
            losses.append(torch.stack([-gain, error, (away.exp() - 1 - away).sum()]))
    policy_loss, value_loss, kl = torch.stack(losses).mean(0)
    in_loss = 0.5 * kl if kl_form == "loss" else 0.0
    assert_gradient(policy.model.pretrained_model, policy_loss + 0.3 * value_loss + in_loss)
    assert_gradient(policy.model.v_head, value_loss)


def moved_reference(ppo: PPO) -> None:
    """Make the reference another model than the policy, so that there is a KL."""
    assert ppo.reference is not None
    torch.manual_seed(0)
    for _, then in ppo.reference.start:
        then += 0.1 * torch.randn_like(then)


def test_a_kl_in_the_loss_is_not_in_the_reward_and_its_gradient_is_the_k3s(make_policy):
    policy = make_policy()
    batch = mixed_batch(policy)
    ppo = PPO(policy, replaced(STILL, kl_form="loss", kl_coef=0.5, kl_coef_final=0.5))
    moved_reference(ppo)
    targets = ppo.targets(batch, rows := batch_rows(batch))
    assert targets.kl_ref.abs().sum() > 1
    without = PPO(policy, STILL).targets(batch, rows)
    assert torch.equal(targets.returns, without.returns)
    ppo.update(batch)
    policy_loss, value_loss, _ = written_down(policy, rows, targets)
    loss = policy_loss + 0.5 * value_loss + 0.5 * kl_in_loss(policy, rows, targets)
    assert_gradient(policy.model.pretrained_model, loss)


@pytest.mark.parametrize("name", ["kl_coef", "entropy_coef"])
def test_a_weight_in_the_loss_is_the_one_that_its_line_has_reached(make_policy, name):
    def gradient(updates: int, first: float, final: float) -> Tensor:
        policy = make_policy()
        weights = {name: first, f"{name}_final": final}
        ppo = PPO(policy, replaced(STILL, kl_form="loss", decay_updates=2, **weights))
        if ppo.reference:
            moved_reference(ppo)
        ppo.updates = updates
        ppo.update(mixed_batch(policy))
        return torch.cat(
            [p.grad.flatten() for p in policy.model.parameters() if p.grad is not None]
        )

    halfway = gradient(1, 0.9, 0.1)
    assert torch.allclose(halfway, gradient(0, 0.5, 0.5), atol=1e-5 * float(halfway.abs().max()))
    assert not torch.allclose(halfway, gradient(0, 0.9, 0.1), rtol=1e-2)


def test_rewards_are_scaled_by_the_spread_of_returns_their_own_batch_included(make_policy):
    policy = make_policy()
    ppo = PPO(policy, replaced(STILL, reward_scale=None))
    ppo.update([played(policy, reward=[0.0, 3.0]), played(policy, reward=[0.0, -1.0])])
    # Returns 3 and -1 spread by 2; gamma and lambda are 1, so a target is what is left of the return.
    assert ppo.used[-1].targets.returns.tolist() == pytest.approx([1.5, 1.5, -0.5, -0.5])


def test_weights_that_nothing_pulls_at_stay_where_they_are(make_policy):
    policy = make_policy()
    before = [weight.clone() for weight in policy.model.pretrained_model.parameters()]
    # Equal rewards leave no advantage, and a detached critic leaves the trunk alone.
    PPO(policy, replaced(STILL, lr=0.1, value_coef=0.0)).update(
        [played(policy, "a", reward=[1.0]) for _ in range(4)]
    )
    assert all(
        torch.equal(a, b)
        for a, b in zip(before, policy.model.pretrained_model.parameters(), strict=True)
    )


def test_token_values_are_those_of_the_columns_that_predict_the_tokens_and_the_first_is_the_turns(
    make_policy,
):
    policy = make_policy()
    batch = mixed_batch(policy)
    targets = PPO(policy, replaced(STILL, credit="token")).targets(batch, rows := batch_rows(batch))
    expected = []
    for row in rows:
        values = outputs(policy, row)[1]
        for turn in row.segment.turns:
            expected += (
                values[turn.start - 1 : turn.end - 1].tolist() if turn.is_trained else [turn.value]
            )
    assert targets.values.tolist() == pytest.approx(expected, abs=1e-4)


def test_token_credit_is_the_same_where_a_template_makes_each_turn_a_segment(make_policy):
    policy = make_policy()
    whole = played(policy, "ab", reward=[1.0, -2.0])
    (segment,) = whole.segments
    first = dataclasses.replace(
        segment, ids=segment.ids[: segment.turns[0].end], turns=segment.turns[:1]
    )
    apart = Trajectory([first, dataclasses.replace(segment, turns=segment.turns[1:])], "terminated")
    ppo = PPO(policy, replaced(STILL, credit="token", gamma=0.9, lam=0.5))
    one, two = (
        ppo.targets([trajectory], batch_rows([trajectory])) for trajectory in (whole, apart)
    )
    assert torch.allclose(one.values, two.values, atol=1e-5)
    assert torch.allclose(one.advantages, two.advantages, atol=1e-5)


def test_a_minibatch_in_many_forwards_has_the_gradient_of_one(make_policy):
    def gradient(tokens: int, **settings) -> Tensor:
        policy = make_policy()
        ppo = PPO(policy, replaced(STILL, **settings), seed=3)
        ppo._limits = ppo._limits._replace(tokens=tokens)
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
    targets = ppo.targets(batch, batch_rows(batch))
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
    ended.final_prompt = cut_off.final_prompt = ended.segments[0]
    cut_off.end = "truncated"
    ppo = PPO(policy, replaced(STILL, gamma=0.9, lam=0.5, whiten_advantages=False))
    targets = ppo.targets([ended, cut_off], batch_rows([ended, cut_off]))
    # delta_0 = 0.9*0.25 - 0.5 = -0.275; delta_1 = 1 - 0.25, or 1 + 0.9*2 - 0.25; A_0 = delta_0 + 0.9*0.5*delta_1
    assert targets.advantages.tolist() == pytest.approx([0.0625, 0.75, 0.8725, 2.55])
    assert targets.returns.tolist() == pytest.approx([0.5625, 1.0, 1.3725, 2.8])


def test_a_terminated_episode_needs_no_final_prompt_and_a_truncated_one_does(make_policy):
    for end, has_prompt in (("terminated", False), ("truncated", True)):
        episode = Episode(make_policy(), "Play.")
        episode.observe("a")
        episode.reply(Reply([5], [0.0], 0.0, True))
        assert (episode.finish(end, "b").final_prompt is not None) is has_prompt  # type: ignore[arg-type]


def test_advantages_are_whitened_over_the_trained_turns_of_all_episodes_and_returns_are_not(
    make_policy,
):
    policy = make_policy()
    batch = [played(policy, "a", reward=[1.0]), played(policy, "b", reward=[3.0])]
    batch += [played(policy, "c", reward=[100.0], is_trained=[False])]
    targets = PPO(policy, STILL).targets(batch, batch_rows(batch))
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
    assert stats.tokens == 4 * len(policy.chat.reply_ids(REPLIES[0]))


def test_the_first_ratio_is_that_of_the_first_minibatch_alone(make_policy):
    policy = make_policy()
    fast = replaced(STILL, lr=3e-2, lr_final=3e-2, mini_batch_size=1, epochs=2)
    batch = [played(policy, "a", reward=[1.0]), played(policy, "b", reward=[-1.0])]
    stats = PPO(policy, fast).update(batch)
    assert stats.first_ratio < 1e-4 < stats.approx_kl


def test_the_target_kl_is_compared_with_the_kl_of_the_last_epoch_alone(make_policy):
    fast = replaced(STILL, lr=1e-3, lr_final=1e-3, epochs=2)

    def updated(**changes):
        policy = make_policy()
        return PPO(policy, replaced(fast, **changes)).update(
            [played(policy, "a", reward=[1.0]), played(policy, "b")]
        )

    # One step an epoch: the first epoch's KL is 0, so the mean over both is half of the second's, and so on.
    second = 2 * updated().approx_kl
    third = 3 * updated(epochs=3).approx_kl - second
    assert 0 < second < third
    assert updated(epochs=4, target_kl=0.75 * second).epochs == 2
    assert updated(epochs=4, target_kl=(second + third) / 2).epochs == 3


def test_explained_variance_compares_values_with_returns_of_trained_turns(make_policy):
    policy = make_policy()
    batch = [
        played(policy, "a", reward=[1.0], value=[0.5]),
        played(policy, "b", reward=[-1.0], value=[-0.5]),
    ]
    batch += [played(policy, "c", reward=[9.0], is_trained=[False])]
    # Var(G) = 1; Var(G - V) = 0.25
    assert PPO(policy, STILL).update(batch).explained_variance == pytest.approx(0.75, abs=1e-4)


def test_rates_and_weights_move_along_their_lines_and_the_value_heads_rate_stays(make_policy):
    policy = make_policy()
    ppo = PPO(policy, PPOConfig(
        lr=1e-3, lr_final=0.0, value_lr=7e-3, kl_coef=0.4, kl_coef_final=0.0, entropy_coef=0.2, entropy_coef_final=0.1,
        decay_updates=4,
    ))  # fmt: skip
    ppo.updates = 2
    assert ppo.entropy_coef == pytest.approx(0.15)
    stats = ppo.update([played(policy)])
    assert (stats.lr, stats.kl_coef, stats.entropy_coef) == pytest.approx((5e-4, 0.2, 0.15))
    assert [group["lr"] for group in ppo.optimizer.param_groups] == pytest.approx([5e-4, 7e-3])
    ppo.updates = 9
    assert (ppo.kl_coef, ppo.entropy_coef) == pytest.approx((0.0, 0.1))


def test_a_running_scale_divides_by_the_spread_of_all_discounted_returns_so_far(make_policy):
    policy = make_policy()
    config = replaced(
        STILL, reward_scale=None, gamma=0.5, whiten_advantages=False, parse_penalty=0.5
    )
    ppo = PPO(policy, config)
    # Discounted returns from each turn on: 0 + 0.5 * 4, then 4, and 0: their variance is 8 / 3.
    first = [played(policy, reward=[0.0, 4.0], value=[0.0, 0.0]), played(policy, "a", reward=[0.0])]
    assert ppo.update(first).reward_scale == pytest.approx((3 / 8) ** 0.5)
    # With 8 besides: 35 / 4 is the variance of 2, 4, 0, 8.
    second = [played(policy, "b", reward=[8.0], parse_failed=[True])]
    assert ppo.update(second).reward_scale == pytest.approx((4 / 35) ** 0.5)
    targets = ppo.targets(second, batch_rows(second))
    assert targets.returns.tolist() == pytest.approx([8 * (4 / 35) ** 0.5 - 0.5])


def test_a_kl_above_its_target_makes_the_next_weight_larger_once_the_policy_moves(make_policy):
    policy = make_policy()
    ppo = PPO(
        policy,
        replaced(STILL, kl_coef=0.5, kl_coef_final=0.1, kl_target=0.1, critic_warmup_updates=1),
    )
    (turn,) = (batch := [played(policy, "a", reward=[1.0])])[0].segments[0].turns
    dearer = tuple(logprob + 0.11 for logprob in turn.logprobs)
    batch[0].segments[0].turns[0] = dataclasses.replace(turn, logprobs=dearer)
    weights = [ppo.update(batch).kl_coef for _ in range(3)]
    # The first update trains the critic alone; the second finds 10 % too much, of which a tenth is answered.
    assert weights == pytest.approx([0.5, 0.5, 0.505], rel=1e-4)


def test_an_update_does_not_depend_on_dropout(make_policy, tokenizer):
    from transformers import GPT2Config, GPT2LMHeadModel

    from llamagym_tui.config import GenerationConfig
    from llamagym_tui.engine.model.value_head import AutoModelForCausalLMWithValueHead
    from llamagym_tui.engine.policy.policy import Policy

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=4, resid_pdrop=0.3, embd_pdrop=0.3
    )
    model = AutoModelForCausalLMWithValueHead(GPT2LMHeadModel(config).train())
    policy = Policy(model, tokenizer, GenerationConfig())
    assert PPO(policy, STILL).update([played(policy), played(policy, "c")]).first_ratio < 1e-4


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


@pytest.mark.usefixtures("either_path")
@pytest.mark.parametrize("normalization", ["sum", "token", "word"])
def test_in_score_mode_the_gradient_is_that_of_the_softmax_over_scores_written_down(
    make_policy, normalization
):
    replies = ['{"action": 0}', 'I say: {"action": 1}', "pass"]
    policy = make_policy(
        temperature=0.7, policy="score", normalization=normalization, replies=replies
    )
    divisors = policy.reply_divisors(policy.trie)
    batch = []
    for number, chosen in enumerate([0, 2, 1]):
        episode = Episode(policy, "Play.")
        for turn in range(2):
            episode.observe(f"{number} {turn}")
            ids = list(policy.trie.replies[chosen])
            choice = Choice(chosen, -1.0, policy.trie.replies, divisors)
            episode.reply(Reply(ids, [0.0] * len(ids), value=0.1, ended=True, choice=choice))
            episode.reward(float(number - turn))
        batch.append(episode.finish("terminated"))
    ppo = PPO(policy, replaced(STILL, entropy_coef=0.3, entropy_coef_final=0.3))
    targets = ppo.targets(batch, batch_rows(batch))
    stats = ppo.update(batch)
    losses = []
    for row in batch_rows(batch):
        for number, turn in enumerate(row.segment.turns):
            begun, scores = [*row.segment.prefix, *row.segment.ids[: turn.start]], []
            for reply, divisor in zip(policy.trie.replies, divisors, strict=True):
                logits = policy.model(torch.tensor([[*begun, *reply]])).logits[
                    0, len(begun) - 1 : -1
                ]
                found = logits.log_softmax(-1).gather(1, torch.tensor(reply)[:, None])
                scores.append(found.sum() / divisor)
            shares = (torch.stack(scores) / 0.7).log_softmax(-1)
            ratio = (shares[turn.choice.chosen] + 1.0).exp()
            advantage = targets.advantages[row.first_turn + number]
            gain = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
            value = policy.model(torch.tensor([begun])).values[0, -1]
            error = 0.5 * (value - targets.returns[row.first_turn + number]) ** 2
            losses.append((-gain, error, -(shares.exp() * shares).sum()))
    policy_loss, critic, entropy = (
        torch.stack(parts).mean() for parts in zip(*losses, strict=True)
    )
    assert_gradient(policy.model.pretrained_model, policy_loss + 0.5 * critic - 0.3 * entropy)
    assert stats.action_entropy == pytest.approx(entropy.item(), abs=1e-5)
    assert stats.entropy == pytest.approx(entropy.item(), abs=1e-5)


def test_scored_play_has_a_first_ratio_of_one_and_a_kl_to_the_reference_of_zero_at_first(
    make_policy,
):
    policy = make_policy(policy="score", normalization="token")
    sampler, batch = Sampler(policy, 8), []
    opening = policy.chat.opening("Play.", "Your total: 12.")
    for _ in range(4):
        for slot in range(8):
            sampler.restart(slot, opening.prefix)
        for reply in sampler.reply(range(8), [list(opening.rest)] * 8):
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


@pytest.mark.parametrize(
    ("deviations", "largest"), [([0.1, 0.3, 0.2], 0.3), ([0.1, float("nan"), 0.2], float("nan"))]
)
def test_the_first_ratio_is_the_largest_deviation_before_a_step_even_if_it_is_no_number(
    deviations, largest
):
    sums, none = UpdateSums(), torch.zeros(0)
    for deviation in deviations:
        policy = PolicyLoss(
            torch.zeros(()), torch.zeros(()), torch.zeros(()), torch.tensor(deviation)
        )
        sums.add(policy, torch.zeros(()), Decisions(none, none, none, none), 1, is_first=True)
    assert sums.first_ratio == pytest.approx(largest, nan_ok=True)


def test_an_update_in_whose_episodes_a_person_acted_has_no_mean_return(make_policy):
    policy = make_policy()
    mixed = played(policy, is_trained=[False, True], reward=[1.0, 2.0])
    corrected = PPO(policy, STILL).update([mixed])
    assert torch.tensor([corrected.mean_return, corrected.return_std]).isnan().all()
    assert PPO(policy, STILL).update([mixed, played(policy, reward=[1.0, 2.0])]).mean_return == 3.0


@pytest.mark.parametrize("n", [1, 4])
def test_the_figures_of_turns_that_are_alike_are_those_of_each(n):
    turn = Turn(0, 5, (-0.5,) * 5, 0.25, 2.0, parse_failed=True)
    one, known = (
        torch.ones(n),
        dict.fromkeys(("update_s", "epochs", "lr", "kl_coef", "entropy_coef"), 0.5),
    )
    known["reward_scale"] = 1.0
    targets = Targets(one, one, one, one, one.bool(), 0.125 * one, None)
    sums = UpdateSums(grad_norms=[3.0] * n)
    found = PolicyLoss(torch.tensor(5.0), torch.tensor(6.0), torch.tensor(1.0), torch.tensor(0.25))
    for at in range(n):
        scored = Decisions(
            torch.ones(1), torch.tensor([8.0]), torch.tensor([9.0]), torch.ones(1, 1)
        )
        sums.add(found, torch.tensor(7.0), scored, 1, is_first=at == 0)
    sums.log_ratios = [(torch.tensor([at]), torch.tensor([1.0])) for at in range(n)]
    assert sums.kl_of_epoch == pytest.approx(math.e - 2)  # (r - 1) - log r
    episode = Trajectory([Segment((1,), [2], [turn])], "terminated", shortened=2)
    stats = update_stats([episode] * n, targets, sums, **known)
    known |= dict.fromkeys(FIGURES_OF_A_RUN, 0.0)
    assert asdict(stats) == known | {
        "mean_return": 2.0, "return_std": 0.0, "policy_loss": 5.0, "value_loss": 7.0, "approx_kl": 6.0, "kl_ref": 0.025,
        "entropy": 8.0, "action_entropy": 9.0, "clip_fraction": 1.0, "explained_variance": pytest.approx(0.0),
        "first_ratio": 0.25, "grad_norm": 3.0, "parse_failure_rate": 1.0, "episodes": n, "turns": n, "tokens": 5 * n,
        "shortened": 2 * n, "skipped_steps": 0, "refusal_rate": 0.0,
        "action_information": 0.0, "group_spread": 0.0, "flat_groups": 0.0, "idle_share": 0.0, "design_effect": 1.0,
    }  # fmt: skip


def test_the_figures_of_an_update_of_nothing_are_zero():
    none, known = (
        torch.zeros(0),
        dict.fromkeys(("update_s", "epochs", "lr", "kl_coef", "entropy_coef"), 0.0),
    )
    targets = Targets(none, none, none, none, none.bool(), none, None)
    known["reward_scale"] = 1.0
    found = asdict(update_stats([], targets, UpdateSums(), **known))
    assert {name for name, value in found.items() if value} == {
        "mean_return",
        "return_std",
        "design_effect",
        "reward_scale",
    }
    assert UpdateSums().kl_of_epoch == 0.0
