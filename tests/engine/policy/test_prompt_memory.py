"""What conversations have in common at their begin is computed once for a version of the policy, with equal results."""

from __future__ import annotations

import copy

import pytest
import torch

from llamagym_tui.engine.model.forward import Backbone
from llamagym_tui.engine.policy import known_tokens
from llamagym_tui.engine.policy.sampler import LARGEST_AHEAD, Lookahead, Sampler
from tests.engine.policy.test_sampler import scored

TEXTS = ("a", "b", "a longer observation: 15.", "a", "b", "a", "c", "a")


def asked(policy, sampler, texts):
    """Replies to each text in a slot of its own, the slots begun again for it."""
    openings = [policy.chat.opening("Play.", text) for text in texts]
    for slot, opening in enumerate(openings):
        sampler.restart(slot, opening.prefix)
    sampler.lookahead = Lookahead(float(LARGEST_AHEAD))  # random weights leave the tree at once
    return sampler.reply(range(len(texts)), [list(opening.rest) for opening in openings])


def sharing_nothing(policy, slots):
    """A sampler that computes every prompt whole."""
    sampler = Sampler(policy, slots)
    rows = sampler.memory.rows
    sampler.memory.rows = lambda keys, compute: rows(range(len(keys)), compute)
    sampler._slots._known.path = lambda prefix, ids: []
    return sampler


@pytest.fixture(params=["generate", "score"])
def policy(make_policy, request):
    policy = make_policy(policy=request.param)
    with torch.no_grad():  # so that some replies follow the tree, and some leave it in its middle
        policy.model.causal_lm.model.embed_tokens.weight.mul_(0.4)
    return policy


def test_draws_values_and_log_probabilities_are_those_of_the_computation_that_shares_nothing(
    policy,
):
    other = copy.deepcopy(policy)
    shared, unshared = Sampler(policy, len(TEXTS)), sharing_nothing(other, len(TEXTS))
    for turn in range(3):
        texts = TEXTS[turn:] + TEXTS[:turn]
        replies = asked(policy, shared, texts)
        for text, reply, alike in zip(texts, replies, asked(other, unshared, texts), strict=True):
            assert reply.ids == alike.ids
            assert reply.logprobs == pytest.approx(alike.logprobs, abs=1e-4)
            assert reply.value == pytest.approx(alike.value, abs=1e-4)
            opening = policy.chat.opening("Play.", text)
            before = [*opening.prefix, *opening.rest]
            logprobs, value = scored(
                policy, [*before, *reply.ids], len(before), len(before) + len(reply.ids)
            )
            if reply.choice is None:
                assert reply.logprobs == pytest.approx(logprobs, abs=1e-4)
            assert reply.value == pytest.approx(value, abs=1e-4)
    assert shared.memory.take_share() == pytest.approx((24 - 4) / 24), (
        "four distinct prompts in three steps"
    )
    assert shared.memory.take_share() == 0.0


def test_a_prompt_that_was_met_needs_no_forward(make_policy, monkeypatch):
    policy = make_policy(policy="score")
    sampler = Sampler(policy, len(TEXTS))
    asked(policy, sampler, TEXTS)
    monkeypatch.setattr(policy.model.backbone, "encode", None)
    assert len(asked(policy, sampler, TEXTS)) == len(TEXTS)


def test_another_version_of_the_policy_remembers_nothing(policy):
    sampler = Sampler(policy, 2)
    (before, _) = asked(policy, sampler, ("a", "b"))
    with torch.no_grad():
        policy.model.v_head.out.bias += 1.0
        policy.model.causal_lm.model.norm.weight *= 1.5
    policy.version += 1
    (after, _) = asked(policy, sampler, ("a", "b"))
    opening = policy.chat.opening("Play.", "a")
    row = [*opening.prefix, *opening.rest, *after.ids]
    _, value = scored(policy, row, len(opening.prefix) + len(opening.rest), len(row))
    assert after.value == pytest.approx(value, abs=1e-4)
    assert after.value != pytest.approx(before.value, abs=1e-3)


@pytest.fixture
def tokens(monkeypatch):
    """Ids of every forward, in order of the calls."""
    computed, encode = [], Backbone.encode

    def counted(self, ids, *rest):
        computed.append(ids.numel())
        return encode(self, ids, *rest)

    monkeypatch.setattr(Backbone, "encode", counted)
    return computed


def test_a_conversation_that_was_found_in_memory_goes_on_with_what_it_has_in_common_read_not_computed(
    policy, tokens
):
    sampler, (opening, other) = (
        Sampler(policy, 2),
        (policy.chat.opening("Play.", text) for text in ("a b c", "a b d")),
    )
    asked(policy, sampler, ("a b c",))
    tokens.clear()
    (reply,) = asked(policy, sampler, ("a b c",))
    found = not tokens
    row, rest = [*opening.prefix, *opening.rest], list(opening.rest)
    for text in ("b", "c"):
        new = [reply.ids[-1], *policy.chat.continuation(text, ended=reply.ended)]
        row += [*reply.ids[:-1], *new]
        (reply,) = sampler.reply([0], [new])
        logprobs, value = scored(policy, [*row, *reply.ids], len(row), len(row) + len(reply.ids))
        if reply.choice is None:
            assert reply.logprobs == pytest.approx(logprobs, abs=1e-4)
        assert reply.value == pytest.approx(value, abs=1e-4)
        assert tokens[0] <= len(new) + len(policy.trie.tree) or not found, (
            "what stood in memory was copied"
        )
    tokens.clear()
    asked(policy, sampler, ("a b d",))
    common = next(
        at for at, (own, its) in enumerate(zip(rest, other.rest, strict=False)) if own != its
    )
    assert tokens[0] == len(other.rest) - common + len(policy.trie.tree)


def test_replies_on_their_trees_are_kept_while_others_are_computed_in_their_rows(make_policy):
    policy = make_policy(policy="score")
    sampler, rows, texts = Sampler(policy, 4), {}, ("a", "b much longer " * 40, "c", "d")
    for slot, reply in enumerate(asked(policy, sampler, texts)):
        opening = policy.chat.opening("Play.", texts[slot])
        rows[slot] = [*opening.prefix, *opening.rest, *reply.ids]
    for slots in ([3], [1, 2], [0, 3], [0, 1, 2, 3]):
        news = {slot: policy.chat.continuation("more", ended=True) for slot in slots}
        prompts = [[rows[slot][-1], *news[slot]] for slot in slots]
        for slot, reply in zip(slots, sampler.reply(slots, prompts), strict=True):
            rows[slot] += [*news[slot], *reply.ids]
            before = len(rows[slot]) - len(reply.ids)
            logprobs, value = scored(policy, rows[slot], before, len(rows[slot]))
            assert reply.logprobs == pytest.approx(logprobs, abs=1e-4)
            assert reply.value == pytest.approx(value, abs=1e-4)


def test_no_more_is_held_than_fits_and_what_was_let_go_is_computed_again(policy, monkeypatch):
    monkeypatch.setattr(known_tokens, "REMEMBERED", 3 * 9 * 32 * 4)
    monkeypatch.setattr(known_tokens, "HELD", 60 * 2 * 2 * 32 * 4)
    other = copy.deepcopy(policy)
    small, unshared = Sampler(policy, 4), sharing_nothing(other, 4)
    for texts in (("a", "b", "c", "d"), ("a", "e", "a", "f"), ("f", "a", "g", "b")):
        pairs = zip(asked(policy, small, texts), asked(other, unshared, texts), strict=True)
        assert all(reply.ids == alike.ids for reply, alike in pairs)
        held = sum(row.bytes for row in small.memory._known.values())
        assert held == small.memory._bytes <= known_tokens.REMEMBERED
        pools = small._slots._known._pools
        assert 0 < sum(pool.nbytes for pool in pools) <= known_tokens.HELD
        assert len(small._slots._known._nodes) <= len(pools[0])
