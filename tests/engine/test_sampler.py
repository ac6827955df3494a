"""What was sampled is what is scored: ids, log-probabilities and values of ragged, continued conversations."""

from __future__ import annotations

import pytest
import torch

from llamagym_tui.engine.sampler import Sampler


def scored(policy, ids: list[int], start: int, end: int) -> tuple[list[float], float]:
    """Log-probabilities of ids[start:end] and V before them, by one plain forward of the whole row."""
    with torch.no_grad():
        output = policy.model(torch.tensor([ids]))
    logprobs = (output.logits[0].float() / policy.generation.temperature).log_softmax(-1)
    return [float(logprobs[at - 1, ids[at]]) for at in range(start, end)], float(output.values[0, start - 1])


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("lora", [False, True])
def test_sampled_logprobs_and_values_are_those_of_a_plain_forward(make_policy, lora, temperature):
    policy = make_policy(lora=lora, temperature=temperature)
    sampler, chat = Sampler(policy, 3), policy.chat
    openings = [chat.opening("Play a game.", told) for told in ("a", "a longer observation: 15.", "b c")]
    for slot, opening in enumerate(openings):
        sampler.restart(slot, opening.prefix)
    rows = [[*opening.prefix, *opening.rest] for opening in openings]
    prompts = [list(opening.rest) for opening in openings]
    for turn in range(3):
        slots = [0, 1, 2] if turn != 1 else [0, 2]
        replies = sampler.reply(slots, [prompts[slot] for slot in slots])
        for slot, reply in zip(slots, replies, strict=True):
            start = len(rows[slot])
            rows[slot] += reply.ids
            logprobs, value = scored(policy, rows[slot], start, len(rows[slot]))
            assert reply.logprobs == pytest.approx(logprobs, abs=2e-5)
            assert reply.value == pytest.approx(value, abs=2e-5)
            new = chat.continuation("more " * (slot + 1), ended=reply.ended)
            rows[slot] += new
            prompts[slot] = [reply.ids[-1], *new]


def test_a_restarted_slot_remembers_nothing(make_policy):
    policy = make_policy()
    opening = policy.chat.opening("Play.", "Your total: 12.")
    fresh, used = Sampler(policy, 1), Sampler(policy, 1)
    used.restart(0, opening.prefix)
    used.reply([0], [[5, 6, 7, 8, 9] * 5])
    for sampler in (fresh, used):
        sampler.restart(0, opening.prefix)
    first, second = (s.reply([0], [list(opening.rest)], greedy=True)[0] for s in (fresh, used))
    assert first.ids == second.ids
    assert first.logprobs == pytest.approx(second.logprobs, abs=1e-5)


def test_a_slot_that_held_no_prefix_in_between_gets_its_prefix_again(make_policy):
    policy = make_policy()
    opening = policy.chat.opening("Play a long game of cards.", "Your total: 12.")
    sampler, found = Sampler(policy, 1), []
    for prefix in (opening.prefix, (), opening.prefix):
        sampler.restart(0, prefix)
        found += sampler.reply([0], [list(opening.rest)], greedy=True)
    first, _, again = found
    assert again.logprobs == pytest.approx(first.logprobs, abs=1e-5)
    assert again.ids == first.ids


def test_a_prefix_is_computed_again_after_an_update(make_policy):
    policy = make_policy()
    opening = policy.chat.opening("Play a long game of cards.", "Your total: 12.")
    sampler = Sampler(policy, 1)
    sampler.restart(0, opening.prefix)
    sampler.reply([0], [list(opening.rest)])
    with torch.no_grad():
        for parameter in policy.model.causal_lm.parameters():
            parameter.mul_(1.1)
    policy.version += 1
    sampler.restart(0, opening.prefix)
    reply = sampler.reply([0], [list(opening.rest)])[0]
    ids = [*opening.prefix, *opening.rest, *reply.ids]
    expected, _ = scored(policy, ids, len(ids) - len(reply.ids), len(ids))
    assert reply.logprobs == pytest.approx(expected, abs=2e-5)


def test_greedy_takes_the_most_probable_token(make_policy):
    policy = make_policy(max_new_tokens=3)
    opening = policy.chat.opening("Play.", "x")
    sampler = Sampler(policy, 1)
    sampler.restart(0, opening.prefix)
    reply = sampler.reply([0], [list(opening.rest)], greedy=True)[0]
    with torch.no_grad():
        logits = policy.model(torch.tensor([[*opening.prefix, *opening.rest]])).logits[0, -1]
    assert reply.ids[0] == int(logits.argmax())


def test_a_reply_ends_at_the_templates_end_or_at_the_allowed_tokens(make_policy):
    policy = make_policy(max_new_tokens=5)
    sampler = Sampler(policy, 64)
    opening = policy.chat.opening("Play.", "x")
    for slot in range(64):
        sampler.restart(slot, opening.prefix)
    for reply in sampler.reply(range(64), [list(opening.rest)] * 64):
        assert len(reply.ids) == len(reply.logprobs) <= 5
        assert reply.ended == (reply.ids[-1] in policy.chat.end_ids)
        assert not any(token in policy.chat.end_ids for token in reply.ids[:-1])


def test_an_end_that_was_sampled_is_kept_and_ends_that_reply_alone(make_policy):
    policy = make_policy(max_new_tokens=4)
    sampler, end = Sampler(policy, 2), policy.chat.end_ids[0]
    script = iter([[5, 6], [end, 7], [end]])
    sampler._sample = lambda logits, greedy: (torch.tensor(next(script)), torch.full((len(logits),), -0.5))
    replies = sampler.reply([0, 1], [[8], [9]])
    assert [reply.ids for reply in replies] == [[5, end], [6, 7, end]]
    assert all(reply.ended and len(reply.logprobs) == len(reply.ids) for reply in replies)


def test_tokens_are_drawn_from_the_whole_distribution_that_their_logprobs_state(make_policy):
    sampler = Sampler(make_policy(temperature=0.5), 1)
    logits = torch.arange(24) / 12
    tokens, logprobs = sampler._sample(logits.expand(40_000, -1), greedy=False)
    p = (logits / 0.5).softmax(-1)
    assert logprobs.exp().tolist() == pytest.approx(p[tokens].tolist(), abs=1e-6)
    # Four standard errors of a count.
    assert ((tokens.bincount(minlength=24) / 40_000 - p).abs() < 4 * (p * (1 - p) / 40_000).sqrt()).all()


def test_the_same_seed_samples_the_same_replies(make_policy):
    def sampled(seed: int) -> list[int]:
        policy = make_policy(seed=seed)
        opening = policy.chat.opening("Play.", "x")
        sampler = Sampler(policy, 1)
        sampler.restart(0, opening.prefix)
        return sampler.reply([0], [list(opening.rest)])[0].ids

    assert sampled(3) == sampled(3) != sampled(4)
