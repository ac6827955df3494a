"""What was sampled is what is scored: ids, log-probabilities and values of prompts of any length."""

from __future__ import annotations

import pytest
import torch
from msgspec.structs import replace

from llamagym_tui.engine.policy import sampler as sampler_module
from llamagym_tui.engine.policy.sampler import Reply, Sampler
from llamagym_tui.errors import ConfigError

SCORED = ['{"action": 0}', 'I say: {"action": 1}']


def scored(policy, ids: list[int], start: int, end: int) -> tuple[list[float], float]:
    """Log-probabilities of ids[start:end] and V before them, by one plain forward of the whole row."""
    with torch.no_grad():
        output = policy.model(torch.tensor([ids]))
    logprobs = (output.logits[0].float() / policy.generation.temperature).log_softmax(-1)
    return [float(logprobs[at - 1, ids[at]]) for at in range(start, end)], float(
        output.values[0, start - 1]
    )


def is_as_scored(policy, row: list[int], reply) -> None:
    """Add a reply to its row, and hold it to one plain forward of the whole row."""
    start = len(row)
    row += reply.ids
    logprobs, value = scored(policy, row, start, len(row))
    assert reply.logprobs == pytest.approx(logprobs, abs=1e-4)
    assert reply.value == pytest.approx(value, abs=1e-4)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("kind", ["generate", "score"])
def test_logprobs_and_values_are_those_of_a_plain_forward(make_policy, kind, temperature):
    policy = make_policy(policy=kind, temperature=temperature, max_new_tokens=6)
    prompts = [policy.chat.opening("Play.", text) for text in ("a", "a longer one: 15.", "b c")]
    replies = Sampler(policy).reply(prompts * 3)
    if kind == "score":  # the temperature divides scores, and no tokens' logits
        policy.generation = replace(policy.generation, temperature=1.0)
    for prompt, reply in zip(prompts * 3, replies, strict=True):
        is_as_scored(policy, [*prompt.prefix, *prompt.rest], reply)


@pytest.mark.parametrize("kind", ["follows", "leaves"])
def test_a_reply_that_follows_or_leaves_the_tree_goes_on_as_if_sampled_token_by_token(
    make_policy, kind
):
    policy = make_policy(temperature=0.8, max_new_tokens=8)
    _, hit = policy.trie.replies
    ids = list(hit) if kind == "follows" else [*hit[:2], 7, 9, hit[-1]]
    script = iter(ids)
    sampler = Sampler(policy)

    def sample(logits, greedy):
        tokens = torch.tensor([next(script)])
        logprobs = (logits / 0.8).log_softmax(-1)
        return tokens, logprobs[[0], tokens]

    sampler.sample = sample
    prompt = policy.chat.opening("Play.", "x")
    (reply,) = sampler.reply([prompt])
    assert (reply.ids, reply.ended) == (ids, True)
    is_as_scored(policy, [*prompt.prefix, *prompt.rest], reply)


def test_computing_ahead_changes_no_sample(make_policy, monkeypatch):
    def sampled() -> Reply:
        policy = make_policy(seed=5, max_new_tokens=6)
        return Sampler(policy).reply([policy.chat.opening("Play.", "x")])[0]

    ahead = sampled()
    monkeypatch.setattr(sampler_module, "LARGEST_AHEAD", 0)
    plain = sampled()
    assert ahead.ids == plain.ids
    assert ahead.logprobs == pytest.approx(plain.logprobs, abs=1e-4)


def test_greedy_takes_the_most_probable_token(make_policy):
    policy = make_policy(max_new_tokens=3)
    prompt = policy.chat.opening("Play.", "x")
    (reply,) = Sampler(policy).reply([prompt], greedy=True)
    row = [*prompt.prefix, *prompt.rest]
    for token in reply.ids:
        with torch.no_grad():
            logits = policy.model(torch.tensor([row])).logits[0, -1]
        # Of two that are as probable up to rounding it may take either.
        assert float(logits[token]) == pytest.approx(float(logits.max()), abs=1e-4)
        row.append(token)


def test_a_reply_ends_at_the_templates_end_or_at_the_allowed_tokens(make_policy):
    policy = make_policy(max_new_tokens=5)
    reported: list[list[int]] = [[] for _ in range(64)]
    replies = Sampler(policy).reply(
        [policy.chat.opening("Play.", "x")] * 64,
        on_token=lambda index, token: reported[index].append(token),
    )
    assert reported == [reply.ids for reply in replies]
    for reply in replies:
        assert len(reply.ids) == len(reply.logprobs) <= 5
        assert reply.ended == (reply.ids[-1] in policy.chat.end_ids)
        assert not any(token in policy.chat.end_ids for token in reply.ids[:-1])


def test_tokens_are_drawn_from_the_whole_distribution_that_their_logprobs_state(make_policy):
    sampler = Sampler(make_policy(temperature=0.5))
    logits = torch.arange(24) / 12
    tokens, logprobs = sampler.sample(logits.expand(40_000, -1), greedy=False)
    p = (logits / 0.5).softmax(-1)
    assert logprobs.exp().tolist() == pytest.approx(p[tokens].tolist(), abs=1e-6)
    # Four standard errors of a count.
    counted = tokens.bincount(minlength=24) / 40_000
    assert ((counted - p).abs() < 4 * (p * (1 - p) / 40_000).sqrt()).all()


def test_the_same_seed_samples_the_same_replies(make_policy):
    def sampled(seed: int) -> list[int]:
        policy = make_policy(seed=seed)
        return Sampler(policy).reply([policy.chat.opening("Play.", "x")])[0].ids

    assert sampled(3) == sampled(3) != sampled(4)


@pytest.mark.parametrize(("normalization", "divisors"), [("sum", (1, 1)), ("token", None)])
def test_a_scored_reply_is_drawn_from_the_softmax_of_normalised_scores(
    make_policy, normalization, divisors
):
    policy = make_policy(
        temperature=0.5, policy="score", normalization=normalization, replies=SCORED
    )
    divisors = divisors or tuple(len(policy.chat.reply_ids(reply)) for reply in SCORED)
    assert policy.reply_divisors(policy.trie) == divisors
    opening = policy.chat.opening("Play.", "Your total: 12.")
    replies = Sampler(policy).reply([opening] * 4000)
    prompt = [*opening.prefix, *opening.rest]
    # `scored` divides logits by the temperature; scores are of the model's own probabilities.
    policy.generation = replace(policy.generation, temperature=1.0)
    sums = [
        sum(scored(policy, [*prompt, *ids], len(prompt), len(prompt) + len(ids))[0])
        for ids in policy.trie.replies
    ]
    shares = (torch.tensor(sums) / torch.tensor(divisors) / 0.5).softmax(-1)
    for reply in replies[:50]:
        assert reply.choice is not None
        assert reply.ids == list(policy.trie.replies[reply.choice.chosen])
        share = float(shares[reply.choice.chosen].log())
        assert reply.choice.logprob == pytest.approx(share, abs=1e-4)
    share = float(shares[1])
    hits = sum(reply.choice is not None and reply.choice.chosen == 1 for reply in replies)
    assert abs(hits / 4000 - share) < 4 * (share * (1 - share) / 4000) ** 0.5


def test_the_score_policy_needs_discrete_actions(make_policy):
    with pytest.raises(ConfigError, match="names no discrete actions"):
        make_policy(policy="score", replies=[])
