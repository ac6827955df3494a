"""How probable each action is on some prompts: of sampling its canonical reply, or of choosing it by score."""

from collections.abc import Sequence

import torch

from llamagym_tui.engine.policy.decisions import score_logprobs
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.scoring import reply_logprobs
from llamagym_tui.engine.tokens.action_trie import ActionTrie
from llamagym_tui.engine.tokens.tokenization import Opening


def action_probabilities(policy: Policy, prompt: Opening, trie: ActionTrie | None = None) -> list[float]:
    """Probability of each admissible reply; where replies are sampled, other texts have the rest.

    `trie` has the replies, where the turn has its own.
    """
    return probabilities_of_actions(policy, [prompt], trie)[0]


@torch.no_grad()
def probabilities_of_actions(
    policy: Policy, prompts: Sequence[Opening], trie: ActionTrie | None = None
) -> list[list[float]]:
    """The same on each of many prompts, those that begin alike computed together.

    Raises:
        PromptTooLongError: the model cannot read one of them.
    """
    trie = trie or policy.trie
    for prompt in prompts:
        policy.require_fit(len(prompt.prefix) + len(prompt.rest), trie)
    generation, replies = policy.generation, trie.replies
    if generation.policy == "generate":
        logprobs = reply_logprobs(policy, prompts, replies)
    else:
        sums = reply_logprobs(policy, prompts, replies, temperature=1.0)
        divisors = torch.tensor(policy.reply_divisors(trie), device=sums.device)
        logprobs = score_logprobs(sums, divisors, generation.temperature)
    return [[float(share) for share in row] for row in logprobs.exp().tolist()]
