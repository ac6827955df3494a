"""Scoring admissible replies on given prompts: the policy's distribution over actions, without sampling.

Prompts that begin alike meet on one tree, so many of them cost little more than what they differ in.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from llamagym_tui.engine.learning.packing import Row, forwards
from llamagym_tui.engine.model.shape import ForwardLimits
from llamagym_tui.engine.policy.decisions import score_logprobs
from llamagym_tui.engine.policy.fixed_trunk import states_of
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.trajectory import Choice, Segment, Turn
from llamagym_tui.engine.tokens.token_tree import ActionTrie
from llamagym_tui.engine.tokens.tokenization import Opening

MOST_COLUMNS = 4096
"""Columns of one forward at most, padding included (one tree may be larger)."""


@torch.no_grad()
def probabilities_of_actions(
    policy: Policy, prompts: Sequence[Opening], trie: ActionTrie | None = None
) -> list[list[float]]:
    """Probability of each action's admissible replies on each prompt; where replies are sampled, other texts have the
    rest.

    `trie` has the replies, where the turns have their own.

    Raises:
        PromptTooLongError: the model cannot read one of them.
    """
    trie = trie or policy.trie
    for prompt in prompts:
        policy.require_fit(len(prompt.prefix) + len(prompt.rest), trie)
    if policy.generation.policy == "generate":
        shares = reply_logprobs(policy, prompts, trie.replies, trie=trie).exp()
    else:
        sums = reply_logprobs(policy, prompts, trie.replies, temperature=1.0, trie=trie)
        divisors = torch.tensor(policy.reply_divisors(trie), device=sums.device)
        shares = score_logprobs(sums, divisors, policy.generation.temperature).exp()
    actions = torch.tensor(trie.actions, dtype=torch.long, device=shares.device)
    of_actions = shares.new_zeros(len(shares), 1 + max(trie.actions, default=-1))
    return of_actions.index_add(1, actions, shares).tolist()


@torch.no_grad()
def reply_logprobs(
    policy: Policy,
    prompts: Sequence[Opening],
    replies: Sequence[Sequence[int]],
    *,
    temperature: float | None = None,
    trie: ActionTrie | None = None,
) -> Tensor:
    """(B, A) log-probability of each of A replies, end included, on each of B prompts.

    Args:
        prompts: first prompts of episodes, or all ids before a reply.
        temperature: divides the logits. None: the policy's.
        trie: the replies as the admissible ones of the policy, where they are these and the temperature is that of
            its decisions. None: they are others.
    """
    if policy.narrow is not None and trie is not None:
        return _narrow_logprobs(policy, prompts, trie)
    backbone = policy.model.backbone
    divisor = policy.generation.temperature if temperature is None else temperature
    # As if the first of the replies had been chosen on each prompt: so the update would score all of them.
    choice = Choice(
        chosen=0,
        logprob=0.0,
        replies=tuple(tuple(reply) for reply in replies),
        divisors=(1.0,) * len(replies),
    )
    rows = []
    for number, (prefix, rest) in enumerate(prompts):
        end = len(rest) + 1
        turn = Turn(len(rest), end, logprobs=(0.0,), value=0.0, reward=0.0, choice=choice)
        rows.append(Row(Segment(prefix, list(rest), [turn]), number))
    sums = torch.zeros(len(prompts), len(replies), device=backbone.device)
    limits = ForwardLimits(MOST_COLUMNS, flat=backbone.is_lean)
    for part in forwards(rows, limits, backbone.device):
        encoded = part.encode(backbone)
        sums[part.turns.indices] = part.reply_logprobs(encoded, divisor, backbone.vocabulary)
    return sums


def _narrow_logprobs(policy: Policy, prompts: Sequence[Opening], trie: ActionTrie) -> Tensor:
    """(B, A) log-probability of each admissible reply, from what is remembered of a fixed trunk."""
    assert policy.narrow is not None, "the caller has looked"
    encoded = states_of(policy, prompts, trie)
    width = 1 + len(trie.tree)
    every = torch.arange(len(prompts) * width, device=encoded.hidden.device)
    score = encoded.scorer_at(every // width, every % width, 1.0)
    found: list[Tensor] = []
    for reply, path in zip(trie.replies, trie.paths, strict=True):
        # Token k of a reply is predicted at node k - 1, the first one at the prompt's last token.
        columns = torch.tensor([0, *(node + 1 for node in path)], device=every.device)
        places = torch.arange(len(prompts), device=every.device)[:, None] * width + columns
        ids = torch.tensor(reply, device=every.device).expand(len(prompts), -1)
        logprobs, _ = score(places.reshape(-1), ids.reshape(-1))
        found.append(logprobs.reshape(len(prompts), -1).sum(-1))
    return torch.stack(found, dim=1)
