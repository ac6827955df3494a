"""Batched replies with exact ids, log-probabilities and values: sampled token by token, or chosen by score.

The textbook samples a reply with one forward for each of its tokens. But most replies are among the few admissible ones
("hit", "stick"), and a forward of ten tokens costs hardly more than a forward of one. So the admissible replies of a
turn are computed ahead, as a tree behind its prompt, and what the sampler draws is looked up there. A reply that stays
on the tree needs no further forward. One that leaves it is continued by transformers' own `generate`.

That is exact: every token is drawn from the whole distribution given all tokens before it. Under the score policy the
tree gives the log-probability of every admissible reply, and one of them is drawn.

Notation: B prompts, M nodes of the tree of replies, V vocabulary, A admissible replies, N their tokens in all.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from llamagym_tui.engine.model.forward import Encoded
from llamagym_tui.engine.model.lean import is_llama_like
from llamagym_tui.engine.own_torch import own_torch
from llamagym_tui.engine.policy.decisions import shares_of_choices, sums_of_replies, token_logprobs
from llamagym_tui.engine.policy.policy import Policy, PromptMemory, states_of
from llamagym_tui.engine.policy.trajectory import Choice
from llamagym_tui.engine.tokens.token_tree import NO_REPLIES, ROOT, ActionTrie
from llamagym_tui.engine.tokens.tokenization import Opening

LARGEST_AHEAD = 64
"""Tokens of admissible replies up to which they are computed ahead of sampling."""
REMEMBERED = 64 * 2**20
"""Bytes of what the present weights said."""
OnToken = Callable[[int, int], None]
"""Called with the index of a prompt and a token of its reply."""


@dataclass(slots=True)
class Reply:
    ids: list[int] = field(default_factory=list)
    """Sampled ids, the end of the turn included if it was sampled."""
    logprobs: list[float] = field(default_factory=list)
    """Log-probability of each id, temperature applied."""
    value: float = 0.0
    """V at the prompt's last token."""
    ended: bool = False
    """True if the policy ended its turn itself, within the allowed tokens."""
    choice: Choice | None = None
    """The choice by score. None: the reply was sampled token by token."""


class Sampler:
    """Replies to prompts."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.memory = policy.memory
        """States after prompts, of the present weights."""
        self._version = policy.version
        self.forget()

    def forget(self) -> None:
        """Drop what was computed. What a fixed trunk said stays."""
        if self.policy.narrow is None:
            self.memory = PromptMemory(REMEMBERED)

    @own_torch()
    def reply(
        self,
        prompts: Sequence[Opening],
        tries: Sequence[ActionTrie] | None = None,
        *,
        greedy: bool = False,
        on_token: OnToken = lambda index, token: None,
    ) -> list[Reply]:
        """Reply to each of B prompts.

        Args:
            prompts: all ids before the replies.
            tries: the admissible replies of each. None: those of every turn.
            greedy: take the most probable token, or reply, instead of sampling.
            on_token: called as tokens are found.
        """
        if self._version != self.policy.version:
            self._version = self.policy.version
            self.forget()
        indices_of: dict[ActionTrie, list[int]] = {}
        for index, trie in enumerate(tries or [self.policy.trie] * len(prompts)):
            indices_of.setdefault(trie, []).append(index)
        found: dict[int, Reply] = {}
        with torch.inference_mode():
            # Most environments have the same actions in every turn, so this is mostly one trie and all prompts.
            for trie, indices in indices_of.items():
                of_trie = self._replies([prompts[index] for index in indices], trie, greedy)
                found |= zip(indices, of_trie, strict=True)
            replies = [found[index] for index in range(len(prompts))]
            for index, reply in enumerate(replies):
                for token in reply.ids:
                    on_token(index, token)
            for group in self._unfinished(prompts, replies):
                self._continue(prompts, replies, group, greedy, on_token)
        return replies

    def _replies(
        self, prompts: Sequence[Opening], trie: ActionTrie, greedy: bool
    ) -> Iterable[Reply]:
        """Replies to prompts with the same admissible ones; those that leave them are unfinished."""
        if self.policy.plays_at_random:
            return self._guessed(trie, len(prompts))
        is_chosen = self.policy.generation.policy == "score"
        ahead = trie if is_chosen or len(trie.tree) <= LARGEST_AHEAD else NO_REPLIES
        encoded = states_of(self.policy, prompts, ahead, self.memory)
        if is_chosen:
            replies = self._chosen(encoded, trie, greedy)
        else:
            replies = self._walked(encoded, ahead, greedy)
        values = self.policy.values(encoded.hidden[:, 0])
        for reply, value in zip(replies, values, strict=True):
            reply.value = value
        return replies

    def _walked(self, encoded: Encoded, trie: ActionTrie, greedy: bool) -> list[Reply]:
        """Sample along the tree, up to the replies' ends, or to where they leave it."""
        device = encoded.hidden.device
        replies = [Reply() for _ in range(len(encoded.hidden))]
        nodes = dict.fromkeys(range(len(replies)), ROOT)  # of the rows that are still on the tree
        while nodes:
            rows = torch.tensor(list(nodes), device=device)
            columns = torch.tensor(list(nodes.values()), device=device) + 1
            tokens, logprobs = self.sample(encoded.logits_at(rows, columns), greedy)
            for row, token, logprob in zip(
                list(nodes), tokens.tolist(), logprobs.tolist(), strict=True
            ):
                child = trie.tree.child(nodes.pop(row), token)
                self._add(replies[row], token, logprob)
                if child is not None and not self._is_over(replies[row]):
                    nodes[row] = child
        return replies

    def _add(self, reply: Reply, token: int, logprob: float) -> None:
        reply.ids.append(token)
        reply.logprobs.append(logprob)
        reply.ended = token in self.policy.chat.end_ids

    def _is_over(self, reply: Reply) -> bool:
        return reply.ended or len(reply.ids) >= self.policy.generation.max_new_tokens

    def _unfinished(
        self, prompts: Sequence[Opening], replies: Sequence[Reply]
    ) -> Iterable[list[int]]:
        """Unfinished replies that are continued together: all of them where padding on the left does no harm."""
        config = self.policy.model.causal_lm.config
        groups: dict[int, list[int]] = {}
        for index, reply in enumerate(replies):
            if self._is_over(reply):
                continue
            if config.model_type == "rwkv":  # With a state, transformers mixes rows of a batch up.
                group = index
            elif is_llama_like(config):
                group = 0
            else:
                group = sum(map(len, prompts[index])) + len(reply.ids)
            groups.setdefault(group, []).append(index)
        return groups.values()

    def _continue(
        self,
        prompts: Sequence[Opening],
        replies: Sequence[Reply],
        indices: Sequence[int],
        greedy: bool,
        on_token: OnToken,
    ) -> None:
        """Continue replies token by token until they end."""

        def choose(logits: Tensor) -> tuple[Tensor, Tensor]:
            tokens, logprobs = self.sample(logits, greedy)
            for index, token, logprob in zip(
                indices, tokens.tolist(), logprobs.tolist(), strict=True
            ):
                if not self._is_over(replies[index]):
                    self._add(replies[index], token, logprob)
                    on_token(index, token)
            done = [self._is_over(replies[index]) for index in indices]
            return tokens, torch.tensor(done, device=tokens.device)

        rows = [
            [*prompts[index].prefix, *prompts[index].rest, *replies[index].ids] for index in indices
        ]
        shortest = min(len(replies[index].ids) for index in indices)
        most = self.policy.generation.max_new_tokens - shortest
        self.policy.model.backbone.continue_rows(rows, choose, most)

    def _chosen(self, encoded: Encoded, trie: ActionTrie, greedy: bool) -> list[Reply]:
        """Choose one of the admissible replies for each prompt."""
        of_tokens = token_logprobs(encoded, trie)  # (B, N)
        shares = shares_of_choices(self.policy, sums_of_replies(of_tokens, trie), trie)  # (B, A)
        chosen = shares.argmax(-1) if greedy else self._drawn(shares)  # (B,)
        # Where each reply's tokens begin among the N.
        starts = [sum(map(len, trie.replies[:reply])) for reply in range(len(trie.replies))]
        divisors = self.policy.reply_divisors(trie)
        replies: list[Reply] = []
        for which, logprobs, share in zip(
            chosen.tolist(), of_tokens.tolist(), shares.tolist(), strict=True
        ):
            ids = list(trie.replies[which])
            logprobs = logprobs[starts[which] : starts[which] + len(ids)]
            choice = Choice(which, share[which], trie.replies, divisors)
            replies.append(Reply(ids, logprobs, ended=True, choice=choice))
        return replies

    def _guessed(self, trie: ActionTrie, prompts: int) -> list[Reply]:
        """Choose any of the admissible replies for each prompt, all as likely, and read none."""
        count = len(trie.replies)
        generator = self.policy.generator
        drawn = torch.randint(count, (prompts,), generator=generator, device=generator.device)
        divisors = self.policy.reply_divisors(trie)
        replies: list[Reply] = []
        for which in drawn.tolist():
            ids = list(trie.replies[which])
            choice = Choice(which, -math.log(count), trie.replies, divisors)
            replies.append(Reply(ids, [0.0] * len(ids), ended=True, choice=choice))
        return replies

    def sample(self, logits: Tensor, greedy: bool) -> tuple[Tensor, Tensor]:
        """(B,) tokens from logits (B, V), and the log-probability of each."""
        logprobs = (logits / self.policy.generation.temperature).log_softmax(-1)
        tokens = logprobs.argmax(-1) if greedy else self._drawn(logprobs)
        return tokens, logprobs.gather(1, tokens[:, None]).squeeze(-1)

    def _drawn(self, logprobs: Tensor) -> Tensor:
        """(B,) indices, each drawn by its row's log-probabilities (B, n).

        A number drawn from [0, 1) meets the first index up to which the probabilities add up to more than it. That
        takes one random number a row, where `torch.multinomial` draws one for each of the n.
        """
        wide = torch.float32 if logprobs.device.type == "mps" else torch.float64
        function = logprobs.exp().to(wide).cumsum(-1)  # (B, n); its end is 1 but for rounding
        draws = torch.rand(
            len(logprobs), 1, dtype=wide, device=logprobs.device, generator=self.policy.generator
        )
        found = torch.searchsorted(function, draws * function[:, -1:], right=True)
        return found.squeeze(-1).clamp(max=logprobs.shape[-1] - 1)
