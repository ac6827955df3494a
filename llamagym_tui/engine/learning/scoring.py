"""The policy's distribution over actions on given prompts, without sampling."""

from collections.abc import Sequence

import torch
from torch import Tensor

from llamagym_tui.engine.policy.decisions import score_logprobs, sums_of_replies, token_logprobs
from llamagym_tui.engine.policy.policy import Policy, states_of
from llamagym_tui.engine.tokens.token_tree import ActionTrie
from llamagym_tui.engine.tokens.tokenization import Opening


@torch.no_grad()
def probabilities_of_actions(
    policy: Policy, prompts: Sequence[Opening], trie: ActionTrie | None = None
) -> list[list[float]]:
    """Probability of each action on each prompt. Where replies are sampled, other texts have the rest.

    Args:
        prompts: all ids before a reply.
        trie: the admissible replies. None: those of every turn.
    Raises:
        PromptTooLongError: the model cannot read one of them.
    """
    trie = trie or policy.trie
    for prompt in prompts:
        policy.require_fit(len(prompt.prefix) + len(prompt.rest), trie)
    temperature = policy.generation.temperature
    if policy.generation.policy == "generate":
        shares = reply_logprobs(policy, prompts, trie, temperature).exp()
    else:
        sums = reply_logprobs(policy, prompts, trie)
        divisors = torch.tensor(policy.reply_divisors(trie), device=sums.device)
        shares = score_logprobs(sums, divisors, temperature).exp()
    actions = torch.tensor(trie.actions, dtype=torch.long, device=shares.device)
    of_actions = shares.new_zeros(len(shares), 1 + max(trie.actions, default=-1))
    return of_actions.index_add(1, actions, shares).tolist()


@torch.no_grad()
def reply_logprobs(
    policy: Policy, prompts: Sequence[Opening], trie: ActionTrie, temperature: float = 1.0
) -> Tensor:
    """(B, A) log-probability of each of A replies, end included, on each of B prompts.

    `temperature` divides the logits.
    """
    encoded = states_of(policy, prompts, trie)
    return sums_of_replies(token_logprobs(encoded, trie, temperature), trie)
