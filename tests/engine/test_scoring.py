"""The policy's distribution over admissible replies, against a plain forward."""

from __future__ import annotations

import pytest
import torch

from llamagym_tui.engine.scoring import reply_logprobs


def test_scores_are_summed_logprobs_of_the_reply_tokens(make_policy):
    policy = make_policy(temperature=0.7)
    openings = [policy.chat.opening("Play.", told) for told in ("a", "a b c d")]
    replies = [policy.chat.reply_ids('{"action": 0}'), policy.chat.reply_ids("hit it now")]
    found = reply_logprobs(policy, openings, replies)
    for i, opening in enumerate(openings):
        for j, reply in enumerate(replies):
            ids = [*opening.prefix, *opening.rest, *reply]
            with torch.no_grad():
                logprobs = (policy.model(torch.tensor([ids])).logits[0] / 0.7).log_softmax(-1)
            start = len(ids) - len(reply)
            expected = sum(float(logprobs[start + at - 1, token]) for at, token in enumerate(reply))
            assert float(found[i, j]) == pytest.approx(expected, abs=1e-4)
