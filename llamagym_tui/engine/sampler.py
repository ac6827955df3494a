"""Batched replies with exact ids, log-probabilities and values: sampled token by token, or chosen by score.

A sampler has slots; a slot holds one conversation's keys and values and is continued with new ids only, so the k-th
turn costs its own tokens. The system prompt is computed once per policy version and copied into slots. The
admissible replies of the agent are computed ahead, as a tree behind the prompt in the same forward: a reply that stays
on the tree needs no further one, and one that leaves it goes on token by token. Every token is drawn from the whole
distribution either way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from llamagym_tui.engine.caches import RaggedCache
from llamagym_tui.engine.decisions import choice_logprobs
from llamagym_tui.engine.forward import Encoded
from llamagym_tui.engine.policy import Policy
from llamagym_tui.engine.token_tree import ROOT, TokenTree
from llamagym_tui.engine.trajectory import Choice

LARGEST_AHEAD = 64
"""Tokens of admissible replies up to which they are computed ahead of sampling."""
LEAST_GAIN = 0.5
"""Tokens of a reply, on average, that must be found on the tree for computing ahead to be worth it."""
TRY_AGAIN = 50
"""Calls without computing ahead, after which it is tried again: replies may have come back to the format."""
LOGITS_AT_ONCE = 2**25
"""Numbers in the logits of scored replies at most, in one piece."""


@dataclass(slots=True)
class Reply:
    """What the policy said on one prompt."""

    ids: list[int] = field(default_factory=list)
    """Sampled ids, the end of the turn included if it was sampled."""
    logprobs: list[float] = field(default_factory=list)
    """Of each id, temperature applied."""
    value: float = 0.0
    """V at the prompt's last token."""
    ended: bool = False
    """Whether the policy ended its turn itself, within the allowed tokens."""
    choice: Choice | None = None
    """How the reply was chosen by score; None: it was sampled token by token."""


class Ahead(NamedTuple):
    """What a prefill computed: prompts, and behind each the tree of admissible replies."""

    encoded: Encoded
    tree: TokenTree
    last: Tensor
    """(B,) index of each prompt's last id."""
    begins: Tensor
    """(B,) column of the cache at which each reply begins."""


class Sampler:
    """Slots of conversations that are continued together."""

    def __init__(self, policy: Policy, slots: int) -> None:
        backbone = policy.model.backbone
        self.policy, self.slots = policy, slots
        self._cache = RaggedCache(slots, backbone.layers, backbone.device)
        self._lengths = torch.zeros(slots, dtype=torch.long, device=backbone.device)
        self._prefix_in: list[tuple[int, ...] | None] = [None] * slots
        self._recorded: dict[tuple[int, ...], Cache] = {}
        self._version = policy.version
        self._gain, self._rests = float(LARGEST_AHEAD), 0

    def restart(self, slot: int, prefix: tuple[int, ...]) -> None:
        """Begin a conversation in a slot, with a prefix that is not computed again."""
        self._notice_update()
        self._lengths[slot] = len(prefix)
        if self._prefix_in[slot] == prefix:
            return
        self._prefix_in[slot] = prefix
        if not prefix:
            return
        with torch.inference_mode():
            if prefix not in self._recorded:
                self._recorded[prefix] = self.policy.model.backbone.record(prefix)
            self._cache.fill(slot, self._recorded[prefix], len(prefix))

    @torch.inference_mode()
    def reply(
        self,
        slots: Sequence[int],
        prompts: Sequence[Sequence[int]],
        *,
        greedy: bool = False,
        on_token: Callable[[int, int], None] | None = None,
    ) -> list[Reply]:
        """Continue conversations by new prompt ids and reply to each.

        Args:
            slots: B distinct slots, ascending.
            prompts: ids that each slot has not seen yet, at least one.
            greedy: take the most probable token, or reply, instead of sampling.
            on_token: called with (index into `slots`, token id) as tokens are found.
        """
        rows = torch.tensor(list(slots), device=self._lengths.device)
        is_chosen = self.policy.generation.policy == "score"
        ahead = self._prefill(rows, prompts, self.policy.trie.tree if is_chosen or self._looks_ahead() else TokenTree())
        at = torch.arange(len(rows), device=rows.device)
        values = self.policy.model.v_head(ahead.encoded.hidden_at(at, ahead.last)).tolist()
        replies = [Reply(value=value) for value in values]
        told = on_token or (lambda index, token: None)
        if is_chosen:
            paths, astray = self._choose(ahead, replies, greedy, told), list[int]()
        else:
            paths, astray = self._walk(ahead, replies, greedy, told)
        self._keep(rows, ahead, paths)
        self._go_on(rows, replies, astray, greedy, told)
        return replies

    def _looks_ahead(self) -> bool:
        """Whether the admissible replies are worth computing with the prompt."""
        if not 0 < len(self.policy.trie.tree) <= LARGEST_AHEAD:
            return False
        if self._gain >= LEAST_GAIN:
            return True
        self._rests += 1
        if self._rests > TRY_AGAIN:
            self._rests, self._gain = 0, LEAST_GAIN
        return False

    def _prefill(self, rows: Tensor, prompts: Sequence[Sequence[int]], tree: TokenTree) -> Ahead:
        """Append prompts to slots, and compute the tree behind each; the slots end with their prompts."""
        backbone, nodes = self.policy.model.backbone, len(tree)
        width = max(map(len, prompts)) + nodes
        padded = [[*prompt, *tree.ids, *[0] * (width - len(prompt) - nodes)] for prompt in prompts]
        ids = torch.tensor(padded, device=rows.device)
        sizes = torch.tensor([len(prompt) for prompt in prompts], device=rows.device)
        begins = self._lengths[rows] + sizes
        columns = self._lengths[rows][:, None] + torch.arange(width, device=rows.device)
        cached = self._cache.aim(rows, columns)
        if not nodes:
            positions, mask = columns, backbone.causal_mask(columns, cached)
        else:
            depths = torch.tensor(tree.depths, device=rows.device)
            own = torch.arange(nodes, device=rows.device)
            at = torch.arange(len(rows), device=rows.device)[:, None]
            positions, limits = columns.clone(), columns.clone()
            positions[at, sizes[:, None] + own] = begins[:, None] + depths
            limits[at, sizes[:, None] + own] = begins[:, None] - 1
            every = torch.arange(cached, device=rows.device).expand(len(rows), -1)
            visible = every[:, None, :] <= limits[:, :, None]
            seen = torch.from_numpy(tree.visible(nodes)).to(rows.device)
            node_rows, node_columns = (sizes[:, None] + own)[:, :, None], (begins[:, None] + own)[:, None, :]
            visible[at[:, :, None], node_rows, node_columns] = seen
            where = every.clone()
            where[at, begins[:, None] + own] = begins[:, None] + depths
            mask = backbone.mask(visible, positions, where)
        encoded = backbone.encode(ids, positions, mask, self._cache)
        self._lengths[rows] = begins
        return Ahead(encoded, tree, sizes - 1, begins)

    def _walk(
        self, ahead: Ahead, replies: list[Reply], greedy: bool, told: Callable[[int, int], None]
    ) -> tuple[list[list[int]], list[int]]:
        """Sample along the tree; the path of each reply on it, and the replies that left it unfinished."""
        paths: list[list[int]] = [[] for _ in replies]
        live, astray, nodes = list(range(len(replies))), [], [ROOT] * len(replies)
        while live:
            at = torch.tensor(live, device=ahead.last.device)
            columns = ahead.last[at] + torch.tensor([nodes[index] + 1 for index in live], device=at.device)
            self._extend(ahead.encoded.logits_at(at, columns), replies, live, greedy, told)
            going = []
            for index in live:
                if self._is_done(replies[index]):
                    continue
                child = ahead.tree.child(nodes[index], replies[index].ids[-1])
                if child is None:
                    astray.append(index)
                    continue
                nodes[index] = child
                paths[index].append(child)
                going.append(index)
            live = going
        if len(ahead.tree):
            self._gain += 0.2 * (sum(map(len, paths)) / len(paths) - self._gain)
        return paths, sorted(astray)

    def _choose(
        self, ahead: Ahead, replies: list[Reply], greedy: bool, told: Callable[[int, int], None]
    ) -> list[list[int]]:
        """Choose one of the admissible replies for each prompt; its path on the tree."""
        trie, divisors = self.policy.trie, self.policy.reply_divisors()
        token_logprobs = self._token_logprobs(ahead)
        shares = self._shares(token_logprobs, divisors)
        chosen = shares.argmax(-1) if greedy else self._drawn(shares)
        starts = [sum(map(len, trie.replies[:reply])) for reply in range(len(trie.replies))]
        for index, (reply, which) in enumerate(zip(replies, chosen.tolist(), strict=True)):
            reply.ids = list(trie.replies[which])
            reply.logprobs = token_logprobs[index, starts[which] : starts[which] + len(reply.ids)].tolist()
            reply.choice = Choice(which, float(shares[index, which]), trie.replies, divisors)
            reply.ended = True
            for token in reply.ids:
                told(index, token)
        return [list(trie.paths[which]) for which in chosen.tolist()]

    def _token_logprobs(self, ahead: Ahead) -> Tensor:
        """(B, N) log-probability of each of the N tokens of all admissible replies, one reply after the other."""
        trie, device = self.policy.trie, ahead.last.device
        before = [node for path in trie.paths for node in (ROOT, *path)]
        tokens = torch.tensor([token for reply in trie.replies for token in reply], device=device)
        behind, nodes = torch.tensor(before, device=device) + 1, torch.arange(len(trie.tree) + 1, device=device)
        found, size = [], max(1, LOGITS_AT_ONCE // (len(nodes) * self.policy.model.backbone.vocabulary))
        for part in torch.arange(len(ahead.last), device=device).split(size):
            rows, columns = torch.broadcast_tensors(part[:, None], ahead.last[part][:, None] + nodes)
            logits = ahead.encoded.logits_at(rows.reshape(-1), columns.reshape(-1))
            logprobs = logits.log_softmax(-1).reshape(len(part), len(nodes), -1)
            found.append(logprobs[:, behind, tokens])
        return torch.cat(found)

    def _shares(self, token_logprobs: Tensor, divisors: Sequence[float]) -> Tensor:
        """(B, A) log-probability of choosing each admissible reply."""
        rows, replies = len(token_logprobs), self.policy.trie.replies
        owners = [reply for reply, ids in enumerate(replies) for _ in ids]
        device = token_logprobs.device
        owner = torch.arange(rows, device=device)[:, None] * len(replies) + torch.tensor(owners, device=device)
        table = torch.tensor(divisors, device=device).expand(rows, -1)
        temperature = self.policy.generation.temperature
        return choice_logprobs(token_logprobs.reshape(-1), owner.reshape(-1), table, temperature)

    def _keep(self, rows: Tensor, ahead: Ahead, paths: Sequence[Sequence[int]]) -> None:
        """Let each slot go on after the path that its reply took: move the path's columns to the reply's begin."""
        longest = max(map(len, paths))
        moved = [[*path, *range(len(path), longest)] for path in paths]
        if any(path != list(range(longest)) for path in moved):
            begins = ahead.begins[:, None]
            source = begins + torch.tensor(moved, device=rows.device)
            self._cache.move(rows, source, begins + torch.arange(longest, device=rows.device))
        self._lengths[rows] = ahead.begins + torch.tensor([len(path) for path in paths], device=rows.device)

    def _go_on(
        self,
        rows: Tensor,
        replies: list[Reply],
        live: Sequence[int],
        greedy: bool,
        told: Callable[[int, int], None],
    ) -> None:
        """Finish replies token by token."""
        while live:
            at = torch.tensor(live, device=rows.device)
            ids = torch.tensor([[replies[index].ids[-1]] for index in live], device=rows.device)
            self._extend(self._next_logits(rows[at], ids), replies, live, greedy, told)
            live = [index for index in live if not self._is_done(replies[index])]

    def _next_logits(self, rows: Tensor, ids: Tensor) -> Tensor:
        """Append one id to each slot, (B, 1); logits (B, V) of what follows."""
        backbone = self.policy.model.backbone
        columns = self._lengths[rows][:, None]
        width = self._cache.aim(rows, columns)
        encoded = backbone.encode(ids, columns, backbone.causal_mask(columns, width), self._cache)
        self._lengths[rows] += 1
        at = torch.arange(len(rows), device=rows.device)
        return encoded.logits_at(at, torch.zeros_like(at))

    def _extend(
        self,
        logits: Tensor,
        replies: list[Reply],
        live: Sequence[int],
        greedy: bool,
        told: Callable[[int, int], None],
    ) -> None:
        """Add one token to each live reply, from logits (B, V)."""
        tokens, logprobs = self._sample(logits, greedy)
        for index, token, logprob in zip(live, tokens.tolist(), logprobs.tolist(), strict=True):
            reply = replies[index]
            reply.ids.append(token)
            reply.logprobs.append(logprob)
            reply.ended = token in self.policy.chat.end_ids
            told(index, token)

    def _is_done(self, reply: Reply) -> bool:
        return reply.ended or len(reply.ids) >= self.policy.generation.max_new_tokens

    def _sample(self, logits: Tensor, greedy: bool) -> tuple[Tensor, Tensor]:
        """(B,) tokens from logits (B, V), and the log-probability of each."""
        logprobs = (logits / self.policy.generation.temperature).log_softmax(-1)
        tokens = logprobs.argmax(-1) if greedy else self._drawn(logprobs)
        return tokens, logprobs.gather(1, tokens[:, None]).squeeze(-1)

    def _drawn(self, logprobs: Tensor) -> Tensor:
        """(B,) indices drawn from (B, n) log-probabilities."""
        return torch.multinomial(logprobs.exp(), 1, generator=self.policy.generator).squeeze(-1)

    def _notice_update(self) -> None:
        """Forget prefixes that older weights computed."""
        if self._version != self.policy.version:
            self._version = self.policy.version
            self._recorded.clear()
            self._prefix_in = [None] * self.slots
