"""Every learner's update next to a naive one: advantages in plain Python, and autograd over a forward a reply."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from itertools import product
from statistics import fmean, pstdev
from typing import Any, NamedTuple

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor

from llamagym_tui.engine.learning import head_steps
from llamagym_tui.engine.learning.packing import batch_rows, minibatches
from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.model.value_head import AutoModelForCausalLMWithValueHead
from llamagym_tui.engine.policy.episode import Episode
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.sampler import Reply, Sampler
from llamagym_tui.engine.policy.trajectory import Choice, Trajectory, Turn
from llamagym_tui.engine.tokens.tokenization import Opening
from llamagym_tui.settings import LEARNERS, GenerationConfig, LoraConfig, PPOConfig
from llamagym_tui.settings.ppo import UNUSED_BY_HEAD
from tests.engine.conftest import REPLIES, tiny_llama
from tests.engine.learning.test_update import STILL

SETTINGS = replace(
    STILL, gamma=0.9, lam=0.8, value_coef=0.3, entropy_coef=0.4, entropy_coef_final=0.4,
    kl_coef=0.5, kl_coef_final=0.5,
)  # fmt: skip
BATCH = [("ab", 0), ("acb", 0), ("a", 0), ("ba", 1), ("bcc", 1), ("c", 2), ("cb", 1), ("ab", 0)]
"""Of each episode its observations, a letter each, and its seed; the last two have the same rewards as another."""
OTHERS = (1, 1)
"""The episode and the turn that someone else took."""


class Case(NamedTuple):
    weights: str
    """What is trained: ``whole``, ``adapter`` or ``head``."""
    kind: str
    """``generate`` or ``score``."""
    turns_a_step: int = 1000


CASES = [
    Case("whole", "generate"),
    Case("whole", "generate", turns_a_step=3),
    Case("whole", "score"),
    Case("adapter", "generate"),
    Case("adapter", "score"),
    Case("head", "score"),
]


class Step(NamedTuple):
    """A turn as the naive advantages see it."""

    observation: str
    earned: float
    kl: float
    """That it pays, weighed."""
    value: float
    own: bool


def policy_of(case: Case, make_policy: Any, tokenizer: Any) -> Policy:
    # Scores a token are as small as probabilities of actions need them, so that their rounding is, too.
    sampling = {"policy": case.kind, "temperature": 0.7, "normalization": "token"}
    if case.weights != "head":
        return make_policy(lora=case.weights == "adapter", **sampling)
    model = AutoModelForCausalLMWithValueHead(tiny_llama(len(tokenizer)))
    model.adapt(LoraConfig(layers="head", r=8))
    settings = GenerationConfig(max_new_tokens=6, **sampling)
    policy = Policy(model, tokenizer, settings, REPLIES, 0)
    policy.history = 0  # so that each prompt is one that may come again
    return policy


def batch_of(policy: Policy) -> list[Trajectory]:
    """Episodes with rewards of all kinds, whose log-probabilities are some way from the policy's."""
    rng = random.Random(2)
    batch = []
    divisors = policy.reply_divisors(policy.trie)
    for number, (observations, seed) in enumerate(BATCH):
        episode = Episode(policy, "Play.")
        for at, observation in enumerate(observations):
            episode.observe(f"You see {observation}.")
            chosen = (number + at) % 2
            ids = list(policy.trie.replies[chosen])
            reply = Reply(ids, [0.0] * len(ids), value=rng.uniform(-1, 1), ended=True)
            if policy.generation.policy == "score":
                reply.choice = Choice(chosen, 0.0, policy.trie.replies, divisors)
            episode.reply(reply)
            episode.reward(float(number % 3 - at), parse_failed=False)
        batch.append(episode.finish("terminated"))
        batch[-1].group = seed
    for number, trajectory in enumerate(batch):
        first = 0
        for segment in trajectory.segments:
            for at, turn in enumerate(segment.turns):
                own = logprobs_of(policy, segment, at).detach()
                old = [float(each) + rng.uniform(-0.3, 0.3) for each in own]
                fields: dict[str, Any] = {"is_trained": (number, first + at) != OTHERS}
                if turn.choice is None:
                    fields["logprobs"] = tuple(old)
                else:
                    fields["choice"] = dataclasses.replace(turn.choice, logprob=old[0])
                segment.turns[at] = dataclasses.replace(turn, **fields)
            first += len(segment.turns)
    return batch


def logits_of(policy: Policy, ids: list[int]) -> Tensor:
    """By one plain forward, (T, V); the one at `at - 1` predicts id `at`."""
    return policy.model(torch.tensor([ids])).logits[0]


def shares_of(policy: Policy, segment: Any, number: int) -> Tensor:
    """(A,) log-probabilities of choosing each of the replies."""
    turn = segment.turns[number]
    begun = [*segment.prefix, *segment.ids[: turn.start]]
    scores = []
    for reply, divisor in zip(turn.choice.replies, turn.choice.divisors, strict=True):
        logits = logits_of(policy, [*begun, *reply])[len(begun) - 1 : -1]
        found = logits.log_softmax(-1).gather(1, torch.tensor(reply)[:, None])
        scores.append(found.sum() / divisor)
    return (torch.stack(scores) / policy.generation.temperature).log_softmax(-1)


def logprobs_of(policy: Policy, segment: Any, number: int) -> Tensor:
    """(D,) of a turn's decisions: the tokens of its reply, or the one choice."""
    turn = segment.turns[number]
    if turn.choice is not None:
        return shares_of(policy, segment, number)[turn.choice.chosen][None]
    start, end = len(segment.prefix) + turn.start, len(segment.prefix) + turn.end
    ids = [*segment.prefix, *segment.ids]
    logits = logits_of(policy, ids)[start - 1 : end - 1] / policy.generation.temperature
    return logits.log_softmax(-1).gather(1, torch.tensor(ids[start:end])[:, None])[:, 0]


def entropy_of(policy: Policy, segment: Any, number: int) -> Tensor:
    """Of the action distribution, where admissible replies part."""
    turn = segment.turns[number]
    if turn.choice is not None:
        shares = shares_of(policy, segment, number)
        return -(shares.exp() * shares).sum()
    start = len(segment.prefix) + turn.start
    logits = logits_of(policy, [*segment.prefix, *segment.ids]) / policy.generation.temperature
    found = torch.zeros(())
    for branch in turn.branches:
        shares = logits[start + branch.at - 1, list(branch.children)].log_softmax(-1)
        found = found - (shares.exp() * shares).sum()
    return found


def naive_advantages(
    name: str, episodes: list[list[Step]], seeds: list[int], gamma: float, lam: float
) -> tuple[list[float], list[float]]:
    """Of each turn, in order, its advantage, and for PPO what its value is drawn to."""
    places = [(e, t) for e, steps in enumerate(episodes) for t in range(len(steps))]
    own = {(e, t): episodes[e][t].own for e, t in places}
    whole = {e: all(step.own for step in steps) for e, steps in enumerate(episodes)}
    from_here = {(e, t): all(step.own for step in episodes[e][t:]) for e, t in places}

    def to_go(e: int, t: int, *, with_kl: bool) -> float:
        return sum(
            gamma**n * (step.earned - with_kl * step.kl) for n, step in enumerate(episodes[e][t:])
        )

    def among(value: float, others: list[float], *, divided: bool) -> float:
        spread = pstdev(others)
        if spread < 1e-6:
            return 0.0
        return (value - fmean(others)) / (spread if divided else 1.0)

    if name == "ppo":
        found: dict[tuple[int, int], float] = {}
        for e, t in reversed(places):
            step = episodes[e][t]
            is_last = t == len(episodes[e]) - 1
            after = 0.0 if is_last else episodes[e][t + 1].value
            found[e, t] = step.earned - step.kl + gamma * after - step.value
            if not is_last and own[e, t + 1]:
                found[e, t] += gamma * lam * found[e, t + 1]
        targets = [found[place] + episodes[place[0]][place[1]].value for place in places]
        trained = [found[place] for place in places if own[place]]
        spread = pstdev(trained) + 1e-6
        return [(found[place] - fmean(trained)) / spread for place in places], targets
    if name in ("reinforce", "rebn"):
        returns = {place: to_go(*place, with_kl=True) for place in places}
        known = [returns[place] for place in places if from_here[place]]
        if name == "rebn":
            spread = pstdev(known) + 1e-6
            returns = {place: (each - fmean(known)) / spread for place, each in returns.items()}
        return [returns[place] * from_here[place] for place in places], []
    advantages = []
    mean_length = fmean(map(len, episodes))
    returns_of = [to_go(e, 0, with_kl=False) for e in range(len(episodes))]
    for e, t in places:
        same_seed = [n for n, seed in enumerate(seeds) if seed == seeds[e] and whole[n]]
        alike = [n for n in whole if episodes[n][0].observation == episodes[e][0].observation]
        there = [
            p for p in places if episodes[p[0]][p[1]].observation == episodes[e][t].observation
        ]
        advantage = 0.0
        if name == "rloo" and whole[e] and pstdev([returns_of[n] for n in same_seed]) > 1e-6:
            advantage = returns_of[e] - fmean(returns_of[n] for n in same_seed if n != e)
        if name == "grpo" and whole[e]:
            advantage = among(returns_of[e], [returns_of[n] for n in same_seed], divided=True)
        if name == "gigpo" and whole[e]:
            others = [returns_of[n] for n in alike if whole[n]]
            advantage += among(returns_of[e], others, divided=True)
        if name == "gigpo" and from_here[e, t]:
            others = [to_go(*p, with_kl=False) for p in there if from_here[p]]
            advantage += among(to_go(e, t, with_kl=False), others, divided=True)
        weight = mean_length / len(episodes[e]) if name == "grpo" else 1.0
        advantages.append((advantage - episodes[e][t].kl) * weight * own[e, t])
    return advantages, []


def each_learner_and_case() -> Iterator[Any]:
    """All pairs; those that are not slow have every learner and every case."""
    for (at, name), (number, case) in product(enumerate(LEARNERS), enumerate(CASES)):
        marks = [] if (number - 2 * at) % len(CASES) in (1, 4) else [pytest.mark.slow]
        label = "-".join(map(str, (name, *case)))
        yield pytest.param(name, case, id=label, marks=marks)


def trained_places(policy: Any) -> torch.Tensor:
    """The places of the trained tokens among the rows of an adapter on the head."""
    return policy.narrow.among(torch.tensor(policy.narrow.trained))


@pytest.mark.parametrize(("name", "case"), each_learner_and_case())
def test_an_update_has_the_gradient_of_a_naive_one(
    make_policy, tokenizer, monkeypatch, name, case
) -> None:
    policy = policy_of(case, make_policy, tokenizer)
    config = replace(SETTINGS, learner=name, mini_batch_size=case.turns_a_step)
    if case.weights == "head":  # whose settings are its own
        unused = {each: getattr(PPOConfig(), each) for each in UNUSED_BY_HEAD}
        config = replace(config, **unused)
        monkeypatch.setattr(head_steps, "STEPS", 1)
    learner: Any = PPO(policy, config, 5)
    batch = batch_of(policy)
    if case.weights == "head":
        learner.update(batch)  # so that the adapter is not 0
        learner.steps.optimizer.param_groups[0]["lr"] = 1e-12
    torch.manual_seed(0)
    if case.weights == "head":
        then = learner.reference.weights["rows"]
        then[trained_places(policy)] += 0.05 * torch.randn(
            len(policy.narrow.trained), then.shape[1]
        )
    else:
        for then in learner.reference.weights.values():
            then += 0.05 * torch.randn_like(then)
    rows = batch_rows(batch)
    turns: list[tuple[Any, int, Turn]] = [
        (segment, number, turn)
        for trajectory in batch
        for segment in trajectory.segments
        for number, turn in enumerate(segment.turns)
    ]
    with torch.no_grad(), learner.reference.in_place():
        references = [logprobs_of(policy, segment, number) for segment, number, _ in turns]
    if not config.has_critic:
        monkeypatch.setattr(policy.model.v_head, "forward", None)
    learner.update(batch)
    if not config.has_critic:
        assert Sampler(policy).reply([Opening((), (4, 5))])[0].value == 0.0
    monkeypatch.undo()

    kl = [
        config.kl_coef * float(torch.tensor(turn.decision_logprobs).sum() - reference.sum())
        for (_, _, turn), reference in zip(turns, references, strict=True)
    ]
    letters = [letter for observations, _ in BATCH for letter in observations]
    steps = [
        Step(letter, turn.reward, charge, turn.value, turn.is_trained)
        for letter, charge, (_, _, turn) in zip(letters, kl, turns, strict=True)
    ]
    left = iter(steps)
    episodes = [[next(left) for _ in observations] for observations, _ in BATCH]
    advantages, returns = naive_advantages(
        name, episodes, [seed for _, seed in BATCH], config.gamma, config.lam
    )
    trained = [at for at, (_, _, turn) in enumerate(turns) if turn.is_trained]
    used = learner.used[-1].targets.advantages[trained].tolist()
    assert used == pytest.approx([advantages[at] for at in trained], abs=1e-4)

    wanted = set(range(len(turns)))
    if case.weights != "head":  # the gradients of the last step are still there
        (*_, last) = minibatches(rows, case.turns_a_step, random.Random(5))
        wanted = {row.first_turn + at for row in last for at in range(len(row.segment.turns))}
    losses = []
    errors = []
    for at, (segment, number, turn) in enumerate(turns):
        if at not in wanted or not turn.is_trained:
            continue
        now = logprobs_of(policy, segment, number)
        ratio = (now - torch.tensor(turn.decision_logprobs)).exp()
        gain = torch.minimum(ratio * advantages[at], ratio.clamp(0.8, 1.2) * advantages[at])
        loss = -gain.sum() - config.entropy_coef * entropy_of(policy, segment, number)
        if config.has_critic and case.weights != "head":
            begun = [*segment.prefix, *segment.ids[: turn.start]]
            value = policy.model(torch.tensor([begun])).values[0, -1]
            errors.append(0.5 * (value - returns[at]) ** 2)
            loss = loss + config.value_coef * errors[-1]
        losses.append(loss)
    if case.weights == "head":
        loss = torch.stack(losses).mean()
        (expected,) = torch.autograd.grad(loss, [policy.narrow.up])
        gradient = expected[policy.narrow.trained].flatten()
        found = learner.steps._rows.grad[trained_places(policy)].flatten()
    else:
        weights = [
            each for each in policy.model.pretrained_model.parameters() if each.requires_grad
        ]
        mean = torch.stack(losses).mean()
        parts = torch.autograd.grad(
            mean, weights, allow_unused=True, materialize_grads=True, retain_graph=True
        )
        gradient = torch.cat([each.flatten() for each in parts])
        found = torch.cat([
            (torch.zeros_like(each) if each.grad is None else each.grad).flatten()
            for each in weights
        ])  # fmt: skip
    assert float((found - gradient).norm() / gradient.norm()) < 1e-5
    head = [each.grad for each in policy.model.v_head.parameters()]
    if errors:
        own = torch.autograd.grad(torch.stack(errors).mean(), policy.model.v_head.parameters())
        for each, other in zip(head, own, strict=True):
            assert float((each - other).norm() / other.norm()) < 1e-5
    else:
        assert all(each is None for each in head)
