"""The policy's distribution over admissible replies, against a plain forward."""

from __future__ import annotations

import pytest
import torch

from llamagym_tui.engine.policy.decisions import (
    probabilities_of_actions,
    reply_logprobs,
    score_logprobs,
)
from llamagym_tui.engine.tokens.token_tree import ActionTrie


def test_scores_are_summed_logprobs_of_the_reply_tokens(make_policy):
    policy = make_policy(temperature=0.7)
    openings = [policy.chat.opening("Play.", text) for text in ("a", "a b c d")]
    replies = [policy.chat.reply_ids('{"action": 0}'), policy.chat.reply_ids("hit it now")]
    found = reply_logprobs(policy, openings, ActionTrie(replies), 0.7)
    for i, opening in enumerate(openings):
        for j, reply in enumerate(replies):
            ids = [*opening.prefix, *opening.rest, *reply]
            with torch.no_grad():
                logprobs = (policy.model(torch.tensor([ids])).logits[0] / 0.7).log_softmax(-1)
            start = len(ids) - len(reply)
            expected = sum(float(logprobs[start + at - 1, token]) for at, token in enumerate(reply))
            assert float(found[i, j]) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("kind", ["generate", "score"])
def test_an_action_is_as_probable_as_all_replies_that_name_it(make_policy, kind):
    replies = ("It is low. hit", "hit", "stick")
    one_each = make_policy(replies=replies, policy=kind)
    several = make_policy(replies=(replies[:2], replies[2:]), policy=kind)
    openings = [one_each.chat.opening("Play.", text) for text in ("a", "a b c d")]
    expected = probabilities_of_actions(one_each, openings)
    for found, (first, second, third) in zip(
        probabilities_of_actions(several, openings), expected, strict=True
    ):
        assert found == pytest.approx([first + second, third])


def test_many_prompts_on_shared_trees_have_the_scores_of_each_alone(make_policy):
    policy = make_policy()
    texts = [
        f"Your total: {total}. Dealer shows: {card}."
        for total in range(4, 22)
        for card in range(2, 11)
    ]
    openings = [policy.chat.opening(prompt, text) for text in texts for prompt in ("Play.", "")]
    together = reply_logprobs(policy, openings, policy.trie)
    for row in range(0, len(openings), 37):
        alone = reply_logprobs(policy, [openings[row]], policy.trie)[0]
        assert together[row].tolist() == pytest.approx(alone.tolist(), abs=1e-4)


def test_scores_do_not_depend_on_how_many_logits_are_held_at_once(make_policy, monkeypatch):
    policy = make_policy()
    openings = [policy.chat.opening("Play.", text) for text in ("a", "a b", "c")]
    whole = reply_logprobs(policy, openings, policy.trie)
    monkeypatch.setattr("llamagym_tui.engine.policy.decisions.PROMPTS_AT_ONCE", 2)
    assert torch.allclose(reply_logprobs(policy, openings, policy.trie), whole, atol=1e-5)


def test_a_reply_that_a_turn_does_not_have_is_never_chosen():
    sums, divisors = torch.tensor([[-2.0, -4.0, 0.0]]), torch.tensor([[1.0, 2.0, torch.inf]])
    # Scores -2 and -2: an even choice between the two that there are.
    assert score_logprobs(sums, divisors, temperature=0.5).exp().tolist() == [
        pytest.approx([0.5, 0.5, 0.0])
    ]
