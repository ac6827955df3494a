"""The example that is read first computes what the engine computes: the same conversations, the same gradient."""

from __future__ import annotations

import copy
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.model.sources import bundled_model_path
from llamagym_tui.engine.model.value_head import AutoModelForCausalLMWithValueHead
from llamagym_tui.engine.policy.episode import Episode
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.sampler import Reply, Sampler
from llamagym_tui.engine.policy.trajectory import Trajectory
from llamagym_tui.settings import GenerationConfig, PPOConfig
from tests.engine.conftest import REPLIES

FILE = Path(__file__).resolve().parents[3] / "docs" / "examples" / "ppo_in_one_file.py"
HANDS = [(4, 10, 0), (12, 2, 0), (13, 1, 1), (15, 6, 0), (18, 9, 1), (20, 7, 0)]


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ppo_in_one_file", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def policy(tokenizer: Any) -> Policy:
    """The bundled model as the engine plays with it, with a value head that says something."""
    lm = AutoModelForCausalLM.from_pretrained(bundled_model_path(), dtype=torch.float32)
    model = AutoModelForCausalLMWithValueHead(lm)
    torch.manual_seed(0)
    nn.init.normal_(model.v_head.out.weight, std=0.1)
    return Policy(model, tokenizer, GenerationConfig(), REPLIES)


def played(policy: Policy) -> list[Trajectory]:
    """Episodes of one to three turns of Blackjack, sampled by the engine, and one whose reply names no action.

    Log-probabilities are moved as if other weights had sampled, so that some ratios are past the clip on both sides.
    """
    agent = BlackjackAgent()
    sampler = Sampler(policy)
    batch = []
    for number in range(12):
        episode = Episode(policy, agent.get_system_prompt())
        for turn in range(1 + number % 3):
            prompt = episode.observe(agent.format_observation(HANDS[(number + turn) % len(HANDS)]))
            (reply,) = sampler.reply([prompt])
            shift = 0.15 * ((number + turn) % 5 - 2)
            reply.logprobs = [logprob + shift for logprob in reply.logprobs]
            episode.reply(reply)
            episode.reward(float(number % 3 - turn))
        batch.append(episode.finish("terminated"))
    episode = Episode(policy, agent.get_system_prompt())
    episode.observe(agent.format_observation(HANDS[0]))
    ids = list(policy.chat.reply_ids("hit or stick"))
    episode.reply(Reply(ids, [-1.0] * len(ids), value=0.5, ended=True))
    episode.reward(1.0, parse_failed=True)
    batch.append(episode.finish("terminated"))
    return batch


def converted(example: ModuleType, trajectory: Trajectory) -> Any:
    """A trajectory of the engine's as an episode of the example's."""
    (segment,) = trajectory.segments
    before = len(segment.prefix)
    turns = [
        example.Turn(
            start=before + turn.start,
            value=turn.value,
            logprobs=list(turn.logprobs),
            names_action=not turn.parse_failed,
            reward=turn.reward,
        )
        for turn in segment.turns
    ]
    return example.Episode([*segment.prefix, *segment.ids], turns)


def example_policy(example: ModuleType, policy: Policy, tokenizer: Any) -> Any:
    """The example's policy, with copies of the engine's weights."""
    lm = copy.deepcopy(policy.model.pretrained_model)
    own = example.Policy(lm, example.admissible_replies(tokenizer))
    first, _, last = own.value_head
    first.load_state_dict(policy.model.v_head.dense.state_dict())
    last.load_state_dict(policy.model.v_head.out.state_dict())
    return own


def gradient(module: nn.Module) -> Tensor:
    return torch.cat([each.grad.flatten() for each in module.parameters() if each.grad is not None])


def difference(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


def test_the_gradient_of_the_first_update_is_the_engines(
    example: ModuleType, policy: Policy, tokenizer: Any
) -> None:
    batch = played(policy)
    config = PPOConfig(
        lr=1e-12, lr_final=1e-12, value_lr=1e-12, epochs=1, mini_batch_size=1000, max_grad_norm=1e9,
        critic_warmup_updates=0, clip_range=example.CLIP, gamma=example.GAMMA, lam=example.LAMBDA,
        value_coef=example.VALUE_COEF, parse_penalty=example.NO_ACTION_PENALTY,
        kl_coef=example.KL_COEF, kl_coef_final=example.KL_COEF,
        entropy_coef=example.ENTROPY_COEF, entropy_coef_final=example.ENTROPY_COEF,
    )  # fmt: skip
    own = example_policy(example, policy, tokenizer)
    # The reference is moved away, so that there is a KL to charge: at first it would be the policy itself.
    ppo = PPO(policy, config)
    reference = copy.deepcopy(own)
    assert ppo.reference is not None
    moved = zip(ppo.reference.weights.values(), reference.lm.parameters(), strict=True)
    for then, weight in moved:
        then += 0.01 * torch.randn_like(then)
        weight.data = then.clone()

    stats = ppo.update(batch)
    episodes = [converted(example, trajectory) for trajectory in batch]
    example.measure_kl(reference, episodes)
    example.set_targets(episodes)
    example.add_gradients(own, episodes, example.ENTROPY_COEF)

    assert 0 < stats.clip_fraction < 1
    assert stats.parse_failure_rate > 0
    assert stats.kl_ref > 0.01
    assert difference(gradient(own.lm), gradient(policy.model.pretrained_model)) < 1e-5
    assert difference(gradient(own.value_head), gradient(policy.model.v_head)) < 1e-5


def test_conversations_have_the_engines_ids(
    example: ModuleType, policy: Policy, tokenizer: Any
) -> None:
    agent = BlackjackAgent()
    for hand in HANDS:
        words = agent.format_observation(hand)
        opening = policy.chat.opening(agent.get_system_prompt(), words)
        first = example.prompt_ids(tokenizer, hand, is_first=True)
        later = example.prompt_ids(tokenizer, hand, is_first=False)
        assert first == [*opening.prefix, *opening.rest]
        assert tuple(later) == policy.chat.continuation(words, ended=True)
    assert tuple(map(tuple, example.admissible_replies(tokenizer))) == policy.trie.replies


def test_what_was_sampled_is_scored_as_it_was_sampled(
    example: ModuleType, policy: Policy, tokenizer: Any
) -> None:
    own = example_policy(example, policy, tokenizer)
    torch.manual_seed(1)
    environments = [gymnasium.make("Blackjack-v1", natural=False, sab=False) for _ in range(16)]
    for number, environment in enumerate(environments):
        environment.reset(seed=number)
    played_out = example.play(own, tokenizer, environments)
    # Prompts of one, two and three turns in one batch: they are of different lengths.
    prompts = [episode.ids[: turn.start] for episode in played_out for turn in episode.turns]
    assert len(set(map(len, prompts))) > 2
    again = [example.Episode(prompt) for prompt in prompts]
    example.add_replies(own, again)
    for episodes in (played_out, again):
        turns = example.turns_of(episodes)
        scores = example.score(own, episodes)
        logprobs = torch.tensor([logprob for turn in turns for logprob in turn.logprobs])
        values = torch.tensor([turn.value for turn in turns])
        assert torch.allclose(scores.logprobs, logprobs, atol=1e-4)
        assert torch.allclose(scores.values, values, atol=1e-4)


def test_it_prints_a_line_an_update(
    example: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("UPDATES", "EPISODES", "HANDS"):
        monkeypatch.setattr(example, name, 2)
    example.main()
    before, first, second, after = capsys.readouterr().out.splitlines()
    assert before.startswith("mean return of 2 hands: ")
    assert first.startswith("update   1  mean return ")
    assert second.startswith("update   2  mean return ")
    assert after.startswith("mean return of 2 hands: ")
