"""On a GPU: what is learnt there is what the processor learns, and greedy replies are the same."""

from __future__ import annotations

import pytest
import torch

from llamagym_tui.config import GenerationConfig, LoraConfig, PPOConfig
from llamagym_tui.engine.learning.learners import learner_for
from llamagym_tui.engine.model.value_head import AutoModelForCausalLMWithValueHead
from llamagym_tui.engine.policy.episode import Episode
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.sampler import Sampler
from llamagym_tui.engine.policy.trajectory import Trajectory
from llamagym_tui.engine.ranks import ALONE
from tests.engine.conftest import REPLIES, tiny_llama

ADAPTERS = {
    "all weights": None,
    "an adapter in all layers": LoraConfig(layers="all", r=4),
    "an adapter on the head": LoraConfig(layers="head", r=8),
}
CONFIG = PPOConfig(
    mini_batch_size=8, epochs=1, kl_coef=0.1, entropy_coef=0.01, entropy_coef_final=0.01
)
OBSERVATIONS = [f"You see {number}." for number in range(16)]


@pytest.fixture
def accelerator() -> torch.device:
    found = torch.accelerator.current_accelerator(check_available=True)
    if found is None:
        pytest.skip("this machine has no accelerator")
    return found


def policy_on(
    device: torch.device, tokenizer, kind: str, adapter: LoraConfig | None, temperature: float = 1.0
) -> Policy:
    model = AutoModelForCausalLMWithValueHead(tiny_llama(len(tokenizer)))
    if adapter is not None:
        model.adapt(adapter)
    settings = GenerationConfig(policy=kind, max_new_tokens=6, temperature=temperature)
    policy = Policy(model.to(device), tokenizer, settings, REPLIES)
    policy.history = 0
    return policy


def replied(policy: Policy, *, greedy: bool = False) -> list[tuple[Episode, str]]:
    sampler = Sampler(policy, len(OBSERVATIONS))
    begun = [Episode(policy, "Play.") for _ in OBSERVATIONS]
    prompts = [each.observe(seen) for each, seen in zip(begun, OBSERVATIONS, strict=True)]
    slots = list(range(len(OBSERVATIONS)))
    for slot, prompt in zip(slots, prompts, strict=True):
        sampler.restart(slot, prompt.restart)
    replies = sampler.reply(slots, [prompt.ids for prompt in prompts], greedy=greedy)
    return [(each, each.reply(reply)) for each, reply in zip(begun, replies, strict=True)]


def play(policy: Policy) -> list[Trajectory]:
    found = []
    for number, (episode, text) in enumerate(replied(policy)):
        is_right = text == REPLIES[number % 2]
        episode.reward(float(is_right), parse_failed=text not in REPLIES)
        found.append(episode.finish("terminated"))
    return found


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("kind", "trained"),
    [
        (kind, trained)
        for kind in ("score", "generate")
        for trained in ADAPTERS
        # Random weights name no action by free text, and a head alone learns from replies that do.
        if (kind, trained) != ("generate", "an adapter on the head")
    ],
)
def test_an_update_on_an_accelerator_is_the_one_on_a_processor(
    tokenizer, accelerator: torch.device, kind: str, trained: str
) -> None:
    processor = torch.device("cpu")
    here, there = (
        policy_on(device, tokenizer, kind, ADAPTERS[trained]) for device in (processor, accelerator)
    )
    batch = play(here)
    before = {name: value.detach().clone() for name, value in here.model.named_parameters()}
    figures = [learner_for(each, CONFIG, 0, ALONE).update(batch) for each in (here, there)]
    assert figures[1].first_ratio < 1e-4
    for name in ("policy_loss", "entropy", "approx_kl", "grad_norm"):
        of_processor, of_accelerator = (getattr(each, name) for each in figures)
        assert of_accelerator == pytest.approx(of_processor, rel=1e-4, abs=1e-6), name
    moved = dict(there.model.named_parameters())
    apart, far = 0.0, 0.0
    for name, weight in here.model.named_parameters():
        value = weight.detach()
        apart += float((value - moved[name].detach().to(processor)).square().sum())
        far += float((value - before[name]).square().sum())
    assert far > 0
    # Adam divides a gradient by its size, so a weight whose gradient is rounding may go either way.
    assert (apart / far) ** 0.5 < 1e-2


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["score", "generate"])
def test_greedy_replies_on_an_accelerator_are_those_on_a_processor(
    tokenizer, accelerator: torch.device, kind: str
) -> None:
    of_processor, of_accelerator = (
        [text for _, text in replied(policy_on(device, tokenizer, kind, None), greedy=True)]
        for device in (torch.device("cpu"), accelerator)
    )
    assert of_accelerator == of_processor
