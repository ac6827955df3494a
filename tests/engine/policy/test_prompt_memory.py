"""Equal prompts after whose reply nothing goes on are computed once while the policy is the same, and give the same."""

from __future__ import annotations

import copy

import pytest
import torch

from llamagym_tui.engine.policy import prompt_memory
from llamagym_tui.engine.policy.sampler import LARGEST_AHEAD, Lookahead, Sampler
from tests.engine.policy.test_sampler import scored

TEXTS = ("a", "b", "a longer observation: 15.", "a", "b", "a", "c", "a")


def asked(policy, sampler, texts, *, alone: bool):
    """Replies to each text in a slot of its own, the slots begun again for it."""
    openings = [policy.chat.opening("Play.", text) for text in texts]
    for slot, opening in enumerate(openings):
        sampler.restart(slot, opening.prefix, alone=alone)
    sampler.lookahead = Lookahead(float(LARGEST_AHEAD))  # random weights leave the tree at once
    return sampler.reply(range(len(texts)), [list(opening.rest) for opening in openings])


@pytest.fixture(params=["generate", "score"])
def policy(make_policy, request):
    policy = make_policy(policy=request.param)
    with torch.no_grad():  # so that some replies follow the tree, and some leave it in its middle
        policy.model.causal_lm.model.embed_tokens.weight.mul_(0.4)
    return policy


def test_draws_values_and_log_probabilities_are_those_of_the_computation_that_shares_nothing(policy):
    other = copy.deepcopy(policy)
    shared, unshared = Sampler(policy, len(TEXTS)), Sampler(other, len(TEXTS))
    for turn in range(3):
        texts = TEXTS[turn:] + TEXTS[:turn]
        replies = asked(policy, shared, texts, alone=True)
        for text, reply, alike in zip(texts, replies, asked(other, unshared, texts, alone=False), strict=True):
            assert reply.ids == alike.ids
            assert reply.logprobs == pytest.approx(alike.logprobs, rel=1e-5)
            assert reply.value == pytest.approx(alike.value, rel=1e-5, abs=1e-6)
            opening = policy.chat.opening("Play.", text)
            before = [*opening.prefix, *opening.rest]
            logprobs, value = scored(policy, [*before, *reply.ids], len(before), len(before) + len(reply.ids))
            if reply.choice is None:
                assert reply.logprobs == pytest.approx(logprobs, abs=2e-5)
            assert reply.value == pytest.approx(value, abs=2e-5)
    assert shared.memory.take_share() == pytest.approx((24 - 4) / 24), "four distinct prompts in three steps"
    assert shared.memory.take_share() == 0.0


def test_a_prompt_that_was_met_needs_no_forward(make_policy, monkeypatch):
    policy = make_policy(policy="score")
    sampler = Sampler(policy, len(TEXTS))
    asked(policy, sampler, TEXTS, alone=True)
    monkeypatch.setattr(policy.model.backbone, "encode", None)
    assert len(asked(policy, sampler, TEXTS, alone=True)) == len(TEXTS)


def test_another_version_of_the_policy_remembers_nothing(policy):
    sampler = Sampler(policy, 2)
    (before, _) = asked(policy, sampler, ("a", "b"), alone=True)
    with torch.no_grad():
        policy.model.v_head.out.bias += 1.0
        policy.model.causal_lm.model.norm.weight *= 1.5
    policy.version += 1
    (after, _) = asked(policy, sampler, ("a", "b"), alone=True)
    opening = policy.chat.opening("Play.", "a")
    row = [*opening.prefix, *opening.rest, *after.ids]
    _, value = scored(policy, row, len(opening.prefix) + len(opening.rest), len(row))
    assert after.value == pytest.approx(value, abs=2e-5)
    assert after.value != pytest.approx(before.value, abs=1e-3)


def test_a_slot_whose_conversation_goes_on_is_computed_in_the_slot(make_policy):
    policy = make_policy()
    sampler, opening = Sampler(policy, 1), policy.chat.opening("Play.", "a")
    asked(policy, sampler, ("a",), alone=True)
    (reply,) = asked(policy, sampler, ("a",), alone=False)
    new = [reply.ids[-1], *policy.chat.continuation("b", ended=reply.ended)]
    row = [*opening.prefix, *opening.rest, *reply.ids[:-1], *new]
    (after,) = sampler.reply([0], [new])
    logprobs, value = scored(policy, [*row, *after.ids], len(row), len(row) + len(after.ids))
    assert after.logprobs == pytest.approx(logprobs, abs=2e-5)
    assert after.value == pytest.approx(value, abs=2e-5)


def test_no_more_is_held_than_fits_and_what_was_let_go_is_computed_again(policy, monkeypatch):
    monkeypatch.setattr(prompt_memory, "REMEMBERED", 3 * 9 * 32 * 4)
    other = copy.deepcopy(policy)
    small, unshared = Sampler(policy, 4), Sampler(other, 4)
    for texts in (("a", "b", "c", "d"), ("a", "e", "a", "f"), ("f", "a", "g", "b")):
        pairs = zip(asked(policy, small, texts, alone=True), asked(other, unshared, texts, alone=False), strict=True)
        assert all(reply.ids == alike.ids for reply, alike in pairs)
        held = sum(row.bytes for row in small.memory._known.values())
        assert held == small.memory._bytes <= prompt_memory.REMEMBERED
