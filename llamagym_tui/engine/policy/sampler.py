"""Batched replies with exact ids, log-probabilities and values: sampled token by token, or chosen by score.

The admissible replies of a turn are computed ahead, as a tree behind its prompt in the same forward. A reply that
stays on the tree needs no further forward, one that leaves it is continued token by token. Either way every token is
drawn from the whole distribution. Conversations that begin with equal prompts are computed once for as long as the
policy is the same, and stand in slots only from where they part.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from llamagym_tui.engine.model.forward import Encoded
from llamagym_tui.engine.policy.decisions import score_logprobs
from llamagym_tui.engine.policy.known_tokens import Key, PromptMemory
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.slots import PlainSlots, Slots
from llamagym_tui.engine.policy.trajectory import Choice
from llamagym_tui.engine.tokens.token_tree import ROOT, ActionTrie, TokenTree

LARGEST_AHEAD = 64
"""Tokens of admissible replies up to which they are computed ahead of sampling."""
LEAST_GAIN = 0.5
"""Tokens of a reply, on average, that must be found on the tree for computing ahead to be worth it."""
TRY_AGAIN = 50
"""Calls without computing ahead, after which it is tried again: replies may follow the format again."""
NOTHING = TokenTree()
"""Computed ahead where that is not worth it."""
TOGETHER = 8
"""Tokens that are drawn before the host looks at them; on a processor, and without slots of its own, it sees each."""
LOGITS_AT_ONCE = 2**25
"""Numbers in the logits of scored replies at most, in one piece."""


@dataclass(slots=True)
class Reply:
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
    weights: Sequence[float] = ()
    """Of each id in the policy's loss. Empty: 1, as the policy itself sampled it."""


class Ahead(NamedTuple):
    encoded: Encoded
    """B rows of 1 + M columns: the prompt's last token, then the nodes of its tree."""
    trees: Sequence[TokenTree]
    """Behind each prompt; M is the size of the largest."""


class Begun(NamedTuple):
    """A conversation that is in no slot yet: all of it was found in the memory of prompts."""

    prefix: tuple[int, ...]
    ids: list[int]


class Lookahead(NamedTuple):
    """Whether computing admissible replies ahead has been worth it."""

    gain: float = float(LARGEST_AHEAD)
    """Tokens of a reply found on the tree, a running mean."""
    rests: int = 0
    """Calls since the tree was last computed."""


class Sampler:
    def __init__(self, policy: Policy, slots: int) -> None:
        self.policy = policy
        self.lookahead = Lookahead()
        self._count = slots
        self._begun: dict[int, Begun] = {}
        self._together = 1 if policy.model.backbone.device.type == "cpu" else TOGETHER
        self.forget()
        self._version = policy.version

    def restart(self, slot: int, prefix: tuple[int, ...]) -> None:
        """Begin a conversation in a slot, with a prefix that is computed once per policy version."""
        if self._version != self.policy.version:
            self._version = self.policy.version
            self._slots.forget()
            self.memory.clear()
        self._begun[slot] = Begun(prefix, [])

    def forget(self) -> None:
        """Drop all that was computed; each conversation must begin with its whole prompt."""
        self.memory = PromptMemory()  # its counts, too: a resumed run has none
        backbone = self.policy.model.backbone
        self._slots = (
            Slots(backbone, self._count) if backbone.shares else PlainSlots(backbone, self._count)
        )

    def reply(
        self,
        slots: Sequence[int],
        prompts: Sequence[Sequence[int]],
        tries: Sequence[ActionTrie] | None = None,
        *,
        greedy: bool = False,
        on_token: Callable[[int, int], None] = lambda index, token: None,
    ) -> list[Reply]:
        """Continue conversations by new prompt ids and reply to each.

        Args:
            slots: B distinct slots, ascending.
            prompts: ids that each slot has not seen yet, at least one.
            tries: the admissible replies of each. None: those of every turn.
            greedy: take the most probable token, or reply, instead of sampling.
            on_token: called with (index into `slots`, token id) as tokens are found.
        """
        with self.policy.model.backbone.unrecorded():
            is_chosen = self.policy.generation.policy == "score"
            tries = tries or [self.policy.trie] * len(slots)
            trees = [trie.tree for trie in tries] if is_chosen else self._trees_ahead(tries)
            ahead, computed = self._ahead(slots, prompts, trees)
            replies = [
                Reply(value=value)
                for value in self.policy.model.v_head(ahead.encoded.hidden[:, 0]).tolist()
            ]
            if is_chosen:
                paths, astray = self._choose(ahead, tries, replies, greedy, on_token), list[int]()
            else:
                paths, astray = self._walk(ahead, replies, greedy, on_token)
            self._slots.keep(
                [slots[i] for i in computed],
                [trees[i] for i in computed],
                [paths[i] for i in computed],
            )
            for index in set(range(len(slots))).difference(computed):
                self._begun[slots[index]].ids.extend(
                    [*prompts[index], *replies[index].ids[: len(paths[index])]]
                )
            while astray:
                among, before = (
                    [slots[index] for index in astray],
                    [len(replies[index].ids) for index in astray],
                )
                logits = self._appended(among, [replies[index].ids[-1] for index in astray])
                ahead_of_host = (
                    self._slots if self._together > 1 and isinstance(self._slots, Slots) else None
                )
                following = ahead_of_host.following(among) if ahead_of_host else None
                live = self.extend(logits, replies, astray, greedy, on_token, following=following)
                if ahead_of_host:
                    ahead_of_host.grow(
                        among,
                        [len(replies[i].ids) - k - 1 for i, k in zip(astray, before, strict=True)],
                    )
                astray = live
            return replies

    def _ahead(
        self, slots: Sequence[int], prompts: Sequence[Sequence[int]], trees: Sequence[TokenTree]
    ) -> tuple[Ahead, list[int]]:
        """What follows each prompt, and the indices of those that were computed for it: these are in their slots."""
        computed: list[int] = []

        def compute(indices: list[int]) -> Encoded:
            computed.extend(indices)
            among, own = [slots[at] for at in indices], [prompts[at] for at in indices]
            return self._prefilled(among, own, [trees[at] for at in indices])

        def key(slot: int, prompt: Sequence[int], tree: TokenTree) -> Key:
            begun = self._begun.get(slot)
            return slot if begun is None else (tree, begun.prefix, (*begun.ids, *prompt))

        return Ahead(
            self.memory.rows(list(map(key, slots, prompts, trees)), compute), trees
        ), computed

    def _prefilled(
        self, slots: Sequence[int], prompts: Sequence[Sequence[int]], trees: Sequence[TokenTree]
    ) -> Encoded:
        whole = list(prompts)
        for at, slot in enumerate(slots):
            if begun := self._begun.pop(slot, None):
                self._slots.restart(slot, begun.prefix)
                whole[at] = [*begun.ids, *prompts[at]]
        return self._slots.prefill(slots, whole, trees)

    def _appended(self, slots: Sequence[int], ids: Sequence[int]) -> Tensor:
        """Append one id to each slot; logits (B, V) of what follows."""
        if isinstance(self._slots, Slots) and self._begun.keys().isdisjoint(slots):
            return self._slots.append(slots, ids)
        rows = torch.arange(len(slots), device=self.policy.model.backbone.device)
        encoded = self._prefilled(slots, [[token] for token in ids], [NOTHING] * len(slots))
        return encoded.logits_at(rows, torch.zeros_like(rows))

    def _trees_ahead(self, tries: Sequence[ActionTrie]) -> list[TokenTree]:
        """What is computed ahead of sampling: the trees that are not too large, or nothing if that is not worth it."""
        trees = [trie.tree if len(trie.tree) <= LARGEST_AHEAD else NOTHING for trie in tries]
        return trees if any(map(len, trees)) and self._looks_ahead() else [NOTHING] * len(tries)

    def _looks_ahead(self) -> bool:
        gain, rests = self.lookahead
        if gain < LEAST_GAIN:
            self.lookahead = (
                Lookahead(gain, rests + 1) if rests < TRY_AGAIN else Lookahead(LEAST_GAIN)
            )
        return gain >= LEAST_GAIN

    def _walk(
        self, ahead: Ahead, replies: list[Reply], greedy: bool, on_token: Callable[[int, int], None]
    ) -> tuple[list[list[int]], list[int]]:
        """Sample along the tree; the path of each reply on it, and the replies that left it unfinished."""
        paths: list[list[int]] = [[] for _ in replies]
        live, astray = list(range(len(replies))), list[int]()
        device = ahead.encoded.hidden.device

        def goes_on(index: int) -> bool:
            child = ahead.trees[index].child(
                paths[index][-1] if paths[index] else ROOT, replies[index].ids[-1]
            )
            (astray if child is None else paths[index]).append(index if child is None else child)
            return child is not None

        while live:
            nodes = [paths[index][-1] if paths[index] else ROOT for index in live]
            at, columns = torch.tensor([live, nodes], device=device)
            following = _along(ahead, live, at, columns) if self._together > 1 else None
            logits = ahead.encoded.logits_at(at, columns + 1)
            live = self.extend(logits, replies, live, greedy, on_token, goes_on, following)
        if any(map(len, ahead.trees)):
            gain, rests = self.lookahead
            self.lookahead = Lookahead(
                gain + 0.2 * (sum(map(len, paths)) / len(paths) - gain), rests
            )
        return paths, sorted(astray)

    def _choose(
        self,
        ahead: Ahead,
        tries: Sequence[ActionTrie],
        replies: list[Reply],
        greedy: bool,
        on_token: Callable[[int, int], None],
    ) -> list[list[int]]:
        """Choose one of the admissible replies for each prompt; its path on the tree."""
        rows_of: dict[ActionTrie, list[int]] = {}
        for row, trie in enumerate(tries):
            rows_of.setdefault(trie, []).append(row)
        paths: list[list[int]] = [[] for _ in replies]
        for trie, rows in rows_of.items():
            divisors = self.policy.reply_divisors(trie)
            token_logprobs = self._token_logprobs(ahead, trie, rows)
            shares = self._shares(token_logprobs, trie, divisors)
            chosen = shares.argmax(-1) if greedy else self._drawn(shares)
            starts = [sum(map(len, trie.replies[:reply])) for reply in range(len(trie.replies))]
            found = zip(
                rows, chosen.tolist(), token_logprobs.tolist(), shares.tolist(), strict=True
            )
            for row, which, logprobs, share in found:
                reply = replies[row]
                reply.ids = list(trie.replies[which])
                reply.logprobs = logprobs[starts[which] : starts[which] + len(reply.ids)]
                reply.choice = Choice(which, share[which], trie.replies, divisors)
                reply.ended = True
                paths[row] = list(trie.paths[which])
                for token in reply.ids:
                    on_token(row, token)
        return paths

    def _token_logprobs(self, ahead: Ahead, trie: ActionTrie, among: Sequence[int]) -> Tensor:
        """(B, N) log-probability of each of the N tokens of admissible replies, one reply after the other, in the B
        rows that have these."""
        device = ahead.encoded.hidden.device
        before = [node for path in trie.paths for node in (ROOT, *path)]
        tokens = torch.tensor([token for reply in trie.replies for token in reply], device=device)
        behind, nodes = (
            torch.tensor(before, device=device) + 1,
            torch.arange(len(trie.tree) + 1, device=device),
        )
        found, size = (
            [],
            max(1, LOGITS_AT_ONCE // (len(nodes) * self.policy.model.backbone.vocabulary)),
        )
        for part in torch.tensor(among, device=device).split(size):
            rows, columns = torch.broadcast_tensors(part[:, None], nodes)
            logits = ahead.encoded.logits_at(rows.reshape(-1), columns.reshape(-1))
            logprobs = logits.log_softmax(-1).reshape(len(part), len(nodes), -1)
            found.append(logprobs[:, behind, tokens])
        return torch.cat(found)

    def _shares(
        self, token_logprobs: Tensor, trie: ActionTrie, divisors: Sequence[float]
    ) -> Tensor:
        """(B, A) log-probability of choosing each admissible reply."""
        device = token_logprobs.device
        owners = torch.tensor(
            [reply for reply, ids in enumerate(trie.replies) for _ in ids], device=device
        )
        sums = token_logprobs.new_zeros(len(token_logprobs), len(trie.replies)).index_add(
            1, owners, token_logprobs
        )
        return score_logprobs(
            sums, torch.tensor(divisors, device=device), self.policy.generation.temperature
        )

    def extend(
        self,
        logits: Tensor,
        replies: list[Reply],
        live: Sequence[int],
        greedy: bool,
        on_token: Callable[[int, int], None],
        goes_on: Callable[[int], bool] = lambda index: True,
        following: Callable[[Tensor], Tensor] | None = None,
    ) -> list[int]:
        """Add tokens to each live reply, from logits (B, V) and those `following` (B,) tokens; those that are not done.

        Without `following` it is one token, else as many as are drawn together, and nothing is read before the last
        of them. `goes_on`: whether a reply takes another token after its last one.
        """
        drawn = [self.sample(logits, greedy)]
        if following is not None:
            most = self.policy.generation.max_new_tokens - max(
                len(replies[index].ids) for index in live
            )
            for _ in range(1, min(self._together, most)):
                drawn.append(self.sample(following(drawn[-1][0]), greedy))
        read = torch.stack(
            [torch.stack([tokens.to(logprobs.dtype), logprobs]) for tokens, logprobs in drawn]
        ).tolist()
        going = set(live)
        for tokens, logprobs in read:
            for index, token, logprob in zip(live, map(int, tokens), logprobs, strict=True):
                if index in going:
                    reply = replies[index]
                    reply.ids.append(token)
                    reply.logprobs.append(logprob)
                    reply.ended = token in self.policy.chat.end_ids
                    on_token(index, token)
                    if (
                        reply.ended
                        or len(reply.ids) >= self.policy.generation.max_new_tokens
                        or not goes_on(index)
                    ):
                        going.remove(index)
        return sorted(going)

    def sample(self, logits: Tensor, greedy: bool) -> tuple[Tensor, Tensor]:
        """(B,) tokens from logits (B, V), and the log-probability of each."""
        logprobs = (logits / self.policy.generation.temperature).log_softmax(-1)
        tokens = logprobs.argmax(-1) if greedy else self._drawn(logprobs)
        return tokens, logprobs.gather(1, tokens[:, None]).squeeze(-1)

    def _drawn(self, logprobs: Tensor) -> Tensor:
        # By the distribution function, with one random number a row: `torch.multinomial` draws one for each of the n.
        wide = torch.float32 if logprobs.device.type == "mps" else torch.float64
        function = logprobs.exp().to(wide).cumsum(-1)
        draws = torch.rand(
            len(logprobs), 1, dtype=wide, device=logprobs.device, generator=self.policy.generator
        )
        found = torch.searchsorted(function, draws * function[:, -1:], right=True)
        return found.squeeze(-1).clamp(max=logprobs.shape[-1] - 1)


def _along(
    ahead: Ahead, live: Sequence[int], at: Tensor, nodes: Tensor
) -> Callable[[Tensor], Tensor]:
    """Goes from N nodes of trees, in rows `at`, by (N,) tokens to the nodes that these are, from call to call; logits
    (N, V) after them. What they are after a token that leaves its tree has no meaning."""
    trees, most = [ahead.trees[index] for index in live], max(map(len, ahead.trees))
    padded = [
        [[*values, *[-2] * (most - len(tree))] for values in (tree.parents, tree.ids)]
        for tree in trees
    ]
    parents, ids = torch.tensor(padded, dtype=torch.long, device=at.device).unbind(1)
    every = torch.arange(most, device=at.device)

    def following(tokens: Tensor) -> Tensor:
        nonlocal nodes
        is_next = (parents == nodes[:, None]) & (ids == tokens[:, None])
        nodes = torch.where(is_next, every, ROOT).amax(-1) if most else nodes
        return ahead.encoded.logits_at(at, nodes + 1)

    return following
