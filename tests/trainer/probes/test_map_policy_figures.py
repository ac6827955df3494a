"""The figures of a policy map: the probabilities under which first turns are sampled, computed another way."""

from __future__ import annotations

import pytest
import torch

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.protocol.events import PolicyMapLaidOut, PolicyMapped
from llamagym_tui.trainer.probes.map_policy import PolicyMapper

SOME = (0, 7, 63, 64, 179, 180, 279)
"""States of Blackjack's map, with those on both sides of a piece's and of a panel's end."""


def mapped(policy, prompt="Play."):
    seen = []
    mapping = PolicyMapper(BlackjackAgent(), policy, seen.append, lambda: 0.0)
    mapping.lay_out()
    mapping.map(prompt, 3, 2, should_stop=lambda: False)
    layout, found = seen
    assert isinstance(layout, PolicyMapLaidOut)
    assert isinstance(found, PolicyMapped)
    words = [cell.words for panel in layout.panels for row in panel.cells for cell in row]
    return words, found


@torch.no_grad()
def logprob(policy, prompt, words, reply, temperature):
    """Of a reply's tokens after a prompt, by one plain forward of the whole conversation."""
    opening = policy.chat.opening(prompt, words)
    ids = [*opening.prefix, *opening.rest, *reply]
    logits = policy.model(torch.tensor([ids])).logits[0] / temperature
    start = len(ids) - len(reply)
    return sum(
        float(logits[start + at - 1].log_softmax(-1)[token]) for at, token in enumerate(reply)
    )


def test_probabilities_are_those_of_sampling_each_reply_as_a_first_turn(make_policy):
    policy = make_policy(temperature=0.8)
    words, found = mapped(policy, "Play well.")
    assert (len(words), len(found.shares), found.update, found.prompt_version) == (280, 280, 2, 3)
    for state in SOME:
        expected = [
            logprob(policy, "Play well.", words[state], reply, 0.8) for reply in policy.trie.replies
        ]
        assert found.shares[state] == pytest.approx(torch.tensor(expected).exp().tolist(), rel=2e-3)


def test_probabilities_of_the_score_policy_are_a_softmax_over_scores(make_policy):
    policy = make_policy(policy="score", temperature=0.5, normalization="token")
    words, found = mapped(policy)
    for state in SOME:
        scores = [
            logprob(policy, "Play.", words[state], reply, 1.0) / len(reply)
            for reply in policy.trie.replies
        ]
        assert found.shares[state] == pytest.approx(
            (torch.tensor(scores) / 0.5).softmax(0).tolist(), abs=2e-4
        )


def test_asking_draws_no_random_number(make_policy):
    policy = make_policy()
    before = policy.generator.get_state()
    mapped(policy)
    assert (policy.generator.get_state() == before).all()
