"""Replies that a server samples and the learner scores again: same log-probabilities, truncated weights, new weights
sent, one sentence where the server fails."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from msgspec import structs

from llamagym_tui.config import PPOConfig
from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.policy.episode import Episode
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.sampler import Sampler
from llamagym_tui.engine.policy.served import ServedSampler, importance_weights, sampler_of
from llamagym_tui.engine.policy.trajectory import Trajectory
from llamagym_tui.errors import ConfigError, GeneratorError
from tests.engine.conftest import tiny_llama
from tests.engine.policy.completions_server import Completions, serving


@pytest.fixture
def completions(tokenizer) -> Completions:
    return Completions(tiny_llama(len(tokenizer)))


@pytest.fixture
def policy(make_policy, completions) -> Iterator[Policy]:
    """With an adapter, its replies sampled by `completions`."""
    with serving(completions) as address:
        yield make_policy(lora=True, server=address, temperature=0.8)


def played(
    policy: Policy, sampler: Sampler | None = None, *, episodes: int = 6, turns: int = 2
) -> list[Trajectory]:
    sampler, slots = sampler or sampler_of(policy, episodes), range(episodes)
    under_way = [Episode(policy, "Play.") for _ in slots]
    for turn in range(turns):
        prompts = [
            each.observe(f"Observation {turn}: {slot}.")
            for slot, each in zip(slots, under_way, strict=True)
        ]
        for slot, prompt in zip(slots, prompts, strict=True):
            if prompt.restart is not None:
                sampler.restart(slot, prompt.restart)
        for slot, reply in enumerate(sampler.reply(slots, [prompt.ids for prompt in prompts])):
            under_way[slot].reply(reply)
            under_way[slot].reward(float(slot % 2))
    return [each.finish("terminated") for each in under_way]


def assert_each_token_has_weight_one(trajectories: list[Trajectory]) -> None:
    weights = [weight for each in trajectories for turn in each.turns for weight in turn.weights]
    assert len(weights) == sum(
        turn.end - turn.start for each in trajectories for turn in each.turns
    )
    assert weights == pytest.approx([1.0] * len(weights), abs=1e-4)


def test_learner_scores_what_the_server_sampled_as_the_server_did_after_an_update_too(
    policy, completions
) -> None:
    ppo = PPO(policy, PPOConfig(batch_size=12, mini_batch_size=4, lr=1e-2, critic_warmup_updates=0))
    sampler = sampler_of(policy, 6)
    for update in range(2):
        trajectories = played(policy, sampler)
        assert_each_token_has_weight_one(trajectories)
        stats = ppo.update(trajectories)
        assert stats.first_ratio < 1e-4
        assert stats.importance_weight == pytest.approx(1.0, abs=1e-4)
        loaded = [
            request["lora_name"]
            for path, request in completions.requests
            if path.endswith("/load_lora_adapter")
        ]
        assert len(loaded) == update + 1, "each version is sent once"


def test_old_adapters_are_unloaded(policy, completions) -> None:
    sampler, prompt = sampler_of(policy, 1), policy.chat.opening("Play.", "x")
    for version in range(3):
        policy.version = version
        sampler.restart(0, prompt[0])
        sampler.reply([0], [list(prompt[1])])
    assert len(completions.adapter.peft_config) == 1


def test_weights_are_the_ratio_of_both_probabilities_truncated(make_policy, tokenizer) -> None:
    completions = Completions(
        tiny_llama(len(tokenizer)), bias=1.0
    )  # even ids are sampled too often
    with serving(completions) as address:
        found = played(policy := make_policy(lora=True, server=address))
    weights: dict[bool, list[float]] = {True: [], False: []}
    for segment in (segment for each in found for segment in each.segments):
        for turn in segment.turns:
            for token, weight in zip(segment.ids[turn.start : turn.end], turn.weights, strict=True):
                weights[token % 2 == 0].append(weight)
    # The server's probabilities are p e / Z of even ids, p / Z of others, with Z between 1 and e.
    assert all(math.exp(-1) < weight < 1 for weight in weights[True])
    assert all(1 < weight <= 2 for weight in weights[False])
    assert weights[True]
    assert weights[False]
    stats = PPO(policy, PPOConfig(batch_size=12, mini_batch_size=4)).update(found)
    mean = sum(weights[True] + weights[False]) / len(weights[True] + weights[False])
    assert stats.importance_weight == pytest.approx(mean, abs=1e-6)
    # By hand: probabilities of 0.5 and 0.25, 0.2 and 0.4, 0.9 and 0.1 under learner and server.
    learner, server = (
        [math.log(each) for each in row] for row in ((0.5, 0.2, 0.9), (0.25, 0.4, 0.1))
    )
    assert importance_weights(learner, server) == pytest.approx([2.0, 0.5, 2.0])


def test_a_weight_scales_the_tokens_advantage_in_the_loss(make_policy) -> None:
    def gradient(weight: float | None, reward: float) -> torch.Tensor:
        policy = make_policy(seed=3)
        (trajectory,) = played(policy, episodes=1, turns=1)
        segment = trajectory.segments[0]
        (turn,) = segment.turns
        weights = () if weight is None else (weight,) * (turn.end - turn.start)
        segment.turns[0] = replace(turn, weights=weights, reward=reward)
        fixed = {
            "whiten_advantages": False,
            "reward_scale": 1.0,
            "kl_coef": 0.0,
            "kl_coef_final": 0.0,
            "epochs": 1,
        }
        still = {
            "entropy_coef": 0.0,
            "entropy_coef_final": 0.0,
            "value_coef": 0.0,
            "critic_warmup_updates": 0,
        }
        ppo = PPO(
            policy, PPOConfig(batch_size=1, mini_batch_size=1, max_grad_norm=1e9, **fixed | still)
        )
        ppo.update([trajectory])
        return torch.cat([p.grad.flatten() for p in policy.model.pretrained_model.parameters()])

    assert torch.allclose(gradient(1.0, 1.0), gradient(None, 1.0))
    assert torch.allclose(gradient(0.25, 1.0), 0.25 * gradient(None, 1.0), atol=1e-7)


def test_greedy_play_takes_the_servers_most_probable_tokens(policy, completions) -> None:
    sampler, prompt = sampler_of(policy, 2), policy.chat.opening("Play.", "x")
    for slot in range(2):
        sampler.restart(slot, prompt[0])
    first, second = sampler.reply([0, 1], [list(prompt[1])] * 2, greedy=True)
    assert first.ids == second.ids
    assert completions.requests[-1][1]["temperature"] == 0.0


def test_tokens_are_shown_as_they_come(policy) -> None:
    sampler, prompt, shown = sampler_of(policy, 1), policy.chat.opening("Play.", "x"), []
    sampler.restart(0, prompt[0])
    (reply,) = sampler.reply(
        [0], [list(prompt[1])], on_token=lambda index, token: shown.append((index, token))
    )
    assert shown == [(0, token) for token in reply.ids]


@pytest.mark.parametrize("left_out", ["token_ids", "logprobs"])
def test_a_server_without_token_ids_or_logprobs_is_refused_in_a_sentence(
    policy, completions, left_out
) -> None:
    completions.leaves_out = (left_out,)
    with pytest.raises(
        GeneratorError, match=r"without token ids and log-probabilities.*return_token_ids is needed"
    ):
        played(policy)


def test_a_server_that_is_not_there_is_named(make_policy) -> None:
    policy = make_policy(lora=True, server="http://127.0.0.1:9/v1")
    with pytest.raises(
        GeneratorError,
        match=r"127\.0\.0\.1:9/v1 does not answer load_lora_adapter .*leave generation",
    ):
        played(policy)


def test_what_a_server_cannot_do_is_refused_before_any_play(make_policy) -> None:
    with pytest.raises(ConfigError, match="full_finetuning=false"):
        ServedSampler(make_policy(server="http://127.0.0.1:9/v1"), 1)
    with pytest.raises(ConfigError, match="score policy"):
        make_policy(lora=True, server="http://127.0.0.1:9/v1", policy="score")
    assert structs.asdict(make_policy().generation)["server"] is None


@pytest.mark.parametrize("lora", [pytest.param(False, marks=pytest.mark.slow), True])
def test_the_learner_scores_what_continuous_batching_sampled_as_that_did_after_an_update_too(
    make_policy, lora
) -> None:
    policy = make_policy(lora=lora, server="generate_batch", temperature=0.8)
    ppo = PPO(policy, PPOConfig(batch_size=12, mini_batch_size=4, lr=1e-2, critic_warmup_updates=0))
    sampler = sampler_of(policy, 6)
    for turns in (2, 1):
        trajectories = played(policy, sampler, turns=turns)
        assert_each_token_has_weight_one(trajectories)
        assert ppo.update(trajectories).first_ratio < 1e-4


def test_continuous_batching_plays_the_most_probable_tokens_greedily(make_policy) -> None:
    policy = make_policy(server="generate_batch")
    sampler = sampler_of(policy, 2)
    prompts = [policy.chat.opening("Play.", each) for each in ("x", "yy z")]
    for slot, (prefix, _) in enumerate(prompts):
        sampler.restart(slot, prefix)
    replies = sampler.reply([0, 1], [list(ids) for _, ids in prompts], greedy=True)
    for (prefix, rest), reply in zip(prompts, replies, strict=True):
        before = [*prefix, *rest]
        with torch.no_grad():
            logits = policy.model(torch.tensor([[*before, *reply.ids]])).logits[0]
        assert reply.ids
        for at, token in enumerate(reply.ids, start=len(before) - 1):
            # Of two that are as probable up to rounding it may take either.
            assert float(logits[at, token]) == pytest.approx(float(logits[at].max()), abs=1e-4)


def test_continuous_batching_that_fails_is_an_error_in_a_sentence(make_policy, monkeypatch) -> None:
    policy = make_policy(server="generate_batch")
    failed = SimpleNamespace(generated_tokens=[], logprobs=[], error="out of memory")
    for found, words in (({}, "0 replies to 6 prompts"), ({"req_0": failed}, "out of memory")):
        monkeypatch.setattr(
            policy.model.backbone.lm, "generate_batch", lambda *_, found=found: found
        )
        with pytest.raises(GeneratorError, match=rf"{words}.*leave generation\.server out"):
            played(policy)
