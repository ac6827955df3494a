"""On a GPU: what is learnt there is what the processor learns, greedy replies are the same, and the host seldom waits.

A machine without one skips all of this. `benchmarks/RESULTS.md` says what was never run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.model.value_head import AutoModelForCausalLMWithValueHead
from llamagym_tui.engine.policy.episode import Episode
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.sampler import Reply, Sampler
from llamagym_tui.engine.policy.trajectory import Trajectory
from llamagym_tui.settings import GenerationConfig, LoraConfig, PPOConfig
from tests.engine.conftest import REPLIES, tiny_llama
from tests.engine.policy.test_sampler import scored

PROCESSOR = torch.device("cpu")
ADAPTERS = {
    "all weights": None,
    "an adapter in all layers": LoraConfig(layers="all", r=4),
    "an adapter on the head": LoraConfig(layers="head", r=8),
}
# One step on the whole batch: what follows it would be of other weights.
CONFIG = PPOConfig(
    lr=1e-3,
    mini_batch_size=16,
    epochs=1,
    critic_warmup_updates=0,
    kl_coef=0.1,
    entropy_coef=0.01,
    entropy_coef_final=0.01,
)
OBSERVATIONS = [f"You see {number}." for number in range(16)]


@pytest.fixture
def accelerator() -> torch.device:
    found = torch.accelerator.current_accelerator(check_available=True)
    if found is None:
        pytest.skip("this machine has no accelerator")
    return found


def policy_on(
    device: torch.device,
    tokenizer,
    kind: str,
    adapter: LoraConfig | None,
    *,
    most: int = 6,
) -> Policy:
    model = AutoModelForCausalLMWithValueHead(tiny_llama(len(tokenizer)))
    if adapter is not None:
        model.adapt(adapter)
    settings = GenerationConfig(policy=kind, max_new_tokens=most)
    policy = Policy(model.to(device), tokenizer, settings, REPLIES)
    policy.history = 0
    return policy


def replied(policy: Policy, *, greedy: bool = False) -> list[tuple[Episode, str]]:
    begun = [Episode(policy, "Play.") for _ in OBSERVATIONS]
    prompts = [each.observe(seen) for each, seen in zip(begun, OBSERVATIONS, strict=True)]
    replies = Sampler(policy).reply(prompts, greedy=greedy)
    return [(each, each.reply(reply)) for each, reply in zip(begun, replies, strict=True)]


def in_words(policy: Policy) -> list[tuple[Episode, str]]:
    """Replies that name an action, as if they had been sampled; what random weights sample names none."""
    found = []
    for number, seen in enumerate(OBSERVATIONS):
        episode = Episode(policy, "Play.")
        prompt = episode.observe(seen)
        before = [*prompt.prefix, *prompt.rest]
        ids = list(policy.trie.replies[number % 3 % 2])
        row = [*before, *ids]
        logprobs, _ = scored(policy, row, len(before), len(row))
        found.append((episode, episode.reply(Reply(ids=ids, logprobs=logprobs, ended=True))))
    return found


def earning(found: list[tuple[Episode, str]]) -> list[Trajectory]:
    """A batch of which no two turns have earned the same."""
    for number, (episode, _) in enumerate(found):
        episode.reward(number * 7 % 16 / 4 - 2)
    return [episode.finish("terminated") for episode, _ in found]


@contextmanager
def first_gradients() -> Iterator[list[Tensor]]:
    """The gradients with which the first step of an optimizer is made, on the processor."""
    found: list[Tensor] = []

    def keep(optimizer: torch.optim.Optimizer, *_: object) -> None:
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        if not found:
            found.extend(each.grad.cpu().clone() for each in weights if each.grad is not None)

    hook = register_optimizer_step_pre_hook(keep)
    try:
        yield found
    finally:
        hook.remove()


def apart(ones: list[Tensor], others: list[Tensor]) -> float:
    """How far tensors are from others, over how large these are."""
    assert len(ones) == len(others) > 0
    far = sum(float((one - other).square().sum()) for one, other in zip(ones, others, strict=True))
    size = sum(float(other.square().sum()) for other in others)
    assert size > 0
    return (far / size) ** 0.5


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("kind", "trained"),
    [
        *(("score", each) for each in ADAPTERS),
        ("generate", "all weights"),
        ("generate", "an adapter in all layers"),
    ],
)
def test_an_update_on_an_accelerator_is_the_one_on_a_processor(
    tokenizer, accelerator: torch.device, kind: str, trained: str
) -> None:
    here, there = (
        policy_on(device, tokenizer, kind, ADAPTERS[trained]) for device in (PROCESSOR, accelerator)
    )
    batch = earning(replied(here) if kind == "score" else in_words(here))
    before = [weight.detach().clone() for weight in here.model.parameters()]
    figures, gradients, moved = [], [], []
    for policy in (here, there):
        with first_gradients() as found:
            figures.append(PPO(policy, CONFIG).update(batch))
        gradients.append(found)
        now = [weight.detach().to(PROCESSOR) for weight in policy.model.parameters()]
        moved.append([after - then for after, then in zip(now, before, strict=True)])
    assert figures[1].first_ratio < 1e-4
    for name in ("policy_loss", "value_loss", "entropy", "approx_kl", "grad_norm"):
        of_processor, of_accelerator = (getattr(each, name) for each in figures)
        assert of_accelerator == pytest.approx(of_processor, rel=1e-4, abs=1e-6), name
    assert apart(gradients[1], gradients[0]) < 1e-4
    # Adam divides a gradient by its size, so a weight whose gradient is rounding may go either way.
    assert apart(moved[1], moved[0]) < 1e-2


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["score", "generate"])
def test_greedy_replies_on_an_accelerator_are_those_on_a_processor(
    tokenizer, accelerator: torch.device, kind: str
) -> None:
    of_processor, of_accelerator = (
        [text for _, text in replied(policy_on(device, tokenizer, kind, None), greedy=True)]
        for device in (PROCESSOR, accelerator)
    )
    assert of_accelerator == of_processor
