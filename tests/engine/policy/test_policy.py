"""What a policy can read, and what its replies are worth."""

from __future__ import annotations

import pytest

from llamagym_tui.errors import PromptTooLongError


@pytest.mark.parametrize("kind", ["generate", "score"])
def test_a_prompt_fits_if_the_longest_reply_behind_it_is_read_too(make_policy, kind):
    policy = make_policy(policy=kind, max_new_tokens=6)
    reply = 6 if kind == "generate" else max(map(len, policy.trie.replies))
    policy.context = 20
    policy.require_fit(20 - reply, policy.trie)
    with pytest.raises(
        PromptTooLongError, match=rf"a prompt of {21 - reply} tokens and a reply of up to {reply} "
    ):
        policy.require_fit(21 - reply, policy.trie)
    policy.context = None
    policy.require_fit(10**9, policy.trie)
