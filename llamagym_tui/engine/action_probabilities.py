"""How probable each action is on one prompt: of sampling its canonical reply, or of choosing it by score."""

from __future__ import annotations

import torch

from llamagym_tui.engine.decisions import score_logprobs
from llamagym_tui.engine.policy import Policy
from llamagym_tui.engine.scoring import reply_logprobs
from llamagym_tui.engine.tokenization import Opening


@torch.no_grad()
def action_probabilities(policy: Policy, prompt: Opening) -> list[float]:
    """Probability of each admissible reply; where replies are sampled, what is missing to 1 are other words.

    Args:
        policy: with admissible replies.
        prompt: all ids before the reply.
    """
    generation, replies = policy.generation, policy.trie.replies
    if generation.policy == "generate":
        return [float(share) for share in reply_logprobs(policy, [prompt], replies)[0].exp()]
    sums = reply_logprobs(policy, [prompt], replies, temperature=1.0)[0]
    divisors = torch.tensor(policy.reply_divisors(), device=sums.device)
    return [float(share) for share in score_logprobs(sums, divisors, generation.temperature).exp()]
