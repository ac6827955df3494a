"""Batched replies with exact ids, log-probabilities and values: sampled token by token, or chosen by score.

The admissible replies of a turn are computed ahead, as a tree behind its prompt in the same forward. A reply that
stays on the tree needs no further forward, one that leaves it is continued token by token. Either way every token is
drawn from the whole distribution. Where nothing goes on after a reply, equal prompts are computed once for as long as
the policy is the same.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from llamagym_tui.engine.model.forward import Encoded
from llamagym_tui.engine.policy.decisions import score_logprobs
from llamagym_tui.engine.policy.plain_slots import PlainSlots
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.prompt_memory import PromptMemory
from llamagym_tui.engine.policy.slots import Ahead, Slots
from llamagym_tui.engine.policy.trajectory import Choice
from llamagym_tui.engine.tokens.action_trie import ActionTrie
from llamagym_tui.engine.tokens.token_tree import ROOT, TokenTree

LARGEST_AHEAD = 64
"""Tokens of admissible replies up to which they are computed ahead of sampling."""
LEAST_GAIN = 0.5
"""Tokens of a reply, on average, that must be found on the tree for computing ahead to be worth it."""
TRY_AGAIN = 50
"""Calls without computing ahead, after which it is tried again: replies may follow the format again."""
NOTHING = TokenTree()
"""Computed ahead where that is not worth it."""
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
        self._alone: dict[int, tuple[int, ...]] = {}
        """Prefixes of the slots whose next reply is their last one; these slots hold nothing."""
        self.forget()
        self._version = policy.version

    def restart(self, slot: int, prefix: tuple[int, ...], *, alone: bool = False) -> None:
        """Begin a conversation in a slot, with a prefix that is computed once per policy version.

        `alone`: for one reply; the slot is begun again before the next one.
        """
        if self._version != self.policy.version:
            self._version = self.policy.version
            self._slots.forget()
            self.memory.clear()
        if alone:
            self._alone[slot] = prefix
        else:
            self._alone.pop(slot, None)
            self._slots.restart(slot, prefix)

    def forget(self) -> None:
        """Drop all that was computed; each conversation must begin with its whole prompt."""
        self.memory = PromptMemory()  # its counts, too: a resumed run has none
        backbone = self.policy.model.backbone
        self._slots = (Slots if backbone.shares else PlainSlots)(backbone, self._count)

    @torch.inference_mode()
    def reply(
        self,
        slots: Sequence[int],
        prompts: Sequence[Sequence[int]],
        tries: Sequence[ActionTrie] | None = None,
        *,
        greedy: bool = False,
        on_token: Callable[[int, int], None] | None = None,
    ) -> list[Reply]:
        """Continue conversations by new prompt ids and reply to each.

        Args:
            slots: B distinct slots, ascending.
            prompts: ids that each slot has not seen yet, at least one.
            tries: the admissible replies of each. None: those of every turn.
            greedy: take the most probable token, or reply, instead of sampling.
            on_token: called with (index into `slots`, token id) as tokens are found.
        """
        is_chosen = self.policy.generation.policy == "score"
        tries = tries or [self.policy.trie] * len(slots)
        trees = [trie.tree for trie in tries] if is_chosen else self._trees_ahead(tries)
        remembers = all(map(len, trees)) and self._alone.keys() >= set(slots)
        ahead = self._remembered(slots, prompts, trees) if remembers else self._prefilled(slots, prompts, trees)
        replies = [Reply(value=value) for value in self.policy.model.v_head(ahead.encoded.hidden[:, 0]).tolist()]
        on_token = on_token or (lambda index, token: None)
        if is_chosen:
            paths, astray = self._choose(ahead, tries, replies, greedy, on_token), list[int]()
        else:
            paths, astray = self._walk(ahead, replies, greedy, on_token)
        if not remembers:
            self._slots.keep(slots, ahead, paths)
        elif astray:
            begun = [[*prompts[index], *replies[index].ids[:-1]] for index in astray]
            self._prefilled([slots[index] for index in astray], begun, [NOTHING] * len(astray))
        while astray:
            logits = self._slots.append([slots[index] for index in astray], [replies[i].ids[-1] for i in astray])
            self.extend(logits, replies, astray, greedy, on_token)
            astray = [index for index in astray if not self._is_done(replies[index])]
        return replies

    def _prefilled(self, slots: Sequence[int], prompts: Sequence[Sequence[int]], trees: Sequence[TokenTree]) -> Ahead:
        for slot in slots:
            if slot in self._alone:
                self._slots.restart(slot, self._alone[slot])
        return self._slots.prefill(slots, prompts, trees)

    def _remembered(self, slots: Sequence[int], prompts: Sequence[Sequence[int]], trees: Sequence[TokenTree]) -> Ahead:
        """The same without keys and values in the slots, and with what was computed before."""

        def compute(indices: list[int]) -> Encoded:
            among, own = [slots[at] for at in indices], [prompts[at] for at in indices]
            return self._prefilled(among, own, [trees[at] for at in indices]).encoded

        prefixes = [self._alone[slot] for slot in slots]
        encoded = self.memory.rows(list(zip(trees, prefixes, map(tuple, prompts), strict=True)), compute)
        return Ahead(encoded, trees, torch.tensor([len(prompt) for prompt in prompts], device=encoded.hidden.device))

    def _trees_ahead(self, tries: Sequence[ActionTrie]) -> list[TokenTree]:
        """What is computed ahead of sampling: the trees that are not too large, or nothing if that is not worth it."""
        trees = [trie.tree if len(trie.tree) <= LARGEST_AHEAD else NOTHING for trie in tries]
        return trees if any(map(len, trees)) and self._looks_ahead() else [NOTHING] * len(tries)

    def _looks_ahead(self) -> bool:
        gain, rests = self.lookahead
        if gain < LEAST_GAIN:
            self.lookahead = Lookahead(gain, rests + 1) if rests < TRY_AGAIN else Lookahead(LEAST_GAIN)
        return gain >= LEAST_GAIN

    def _walk(
        self, ahead: Ahead, replies: list[Reply], greedy: bool, on_token: Callable[[int, int], None]
    ) -> tuple[list[list[int]], list[int]]:
        """Sample along the tree; the path of each reply on it, and the replies that left it unfinished."""
        paths: list[list[int]] = [[] for _ in replies]
        live, astray, nodes = list(range(len(replies))), [], [ROOT] * len(replies)
        while live:
            at, columns = torch.tensor([(index, nodes[index] + 1) for index in live], device=ahead.begins.device).T
            self.extend(ahead.encoded.logits_at(at, columns), replies, live, greedy, on_token)
            going = []
            for index in live:
                if self._is_done(replies[index]):
                    continue
                child = ahead.trees[index].child(nodes[index], replies[index].ids[-1])
                if child is None:
                    astray.append(index)
                    continue
                nodes[index] = child
                paths[index].append(child)
                going.append(index)
            live = going
        if any(map(len, ahead.trees)):
            gain, rests = self.lookahead
            self.lookahead = Lookahead(gain + 0.2 * (sum(map(len, paths)) / len(paths) - gain), rests)
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
            for at, (row, which) in enumerate(zip(rows, chosen.tolist(), strict=True)):
                reply = replies[row]
                reply.ids = list(trie.replies[which])
                reply.logprobs = token_logprobs[at, starts[which] : starts[which] + len(reply.ids)].tolist()
                reply.choice = Choice(which, float(shares[at, which]), trie.replies, divisors)
                reply.ended = True
                paths[row] = list(trie.paths[which])
                for token in reply.ids:
                    on_token(row, token)
        return paths

    def _token_logprobs(self, ahead: Ahead, trie: ActionTrie, among: Sequence[int]) -> Tensor:
        """(B, N) log-probability of each of the N tokens of admissible replies, one reply after the other, in the B
        rows that have these."""
        device = ahead.begins.device
        before = [node for path in trie.paths for node in (ROOT, *path)]
        tokens = torch.tensor([token for reply in trie.replies for token in reply], device=device)
        behind, nodes = torch.tensor(before, device=device) + 1, torch.arange(len(trie.tree) + 1, device=device)
        found, size = [], max(1, LOGITS_AT_ONCE // (len(nodes) * self.policy.model.backbone.vocabulary))
        for part in torch.tensor(among, device=device).split(size):
            rows, columns = torch.broadcast_tensors(part[:, None], nodes)
            logits = ahead.encoded.logits_at(rows.reshape(-1), columns.reshape(-1))
            logprobs = logits.log_softmax(-1).reshape(len(part), len(nodes), -1)
            found.append(logprobs[:, behind, tokens])
        return torch.cat(found)

    def _shares(self, token_logprobs: Tensor, trie: ActionTrie, divisors: Sequence[float]) -> Tensor:
        """(B, A) log-probability of choosing each admissible reply."""
        device = token_logprobs.device
        owners = torch.tensor([reply for reply, ids in enumerate(trie.replies) for _ in ids], device=device)
        sums = token_logprobs.new_zeros(len(token_logprobs), len(trie.replies)).index_add(1, owners, token_logprobs)
        return score_logprobs(sums, torch.tensor(divisors, device=device), self.policy.generation.temperature)

    def extend(
        self,
        logits: Tensor,
        replies: list[Reply],
        live: Sequence[int],
        greedy: bool,
        on_token: Callable[[int, int], None],
    ) -> None:
        """Add one token to each live reply, from logits (B, V)."""
        tokens, logprobs = self.sample(logits, greedy)
        for index, token, logprob in zip(live, tokens.tolist(), logprobs.tolist(), strict=True):
            reply = replies[index]
            reply.ids.append(token)
            reply.logprobs.append(logprob)
            reply.ended = token in self.policy.chat.end_ids
            on_token(index, token)

    def _is_done(self, reply: Reply) -> bool:
        return reply.ended or len(reply.ids) >= self.policy.generation.max_new_tokens

    def sample(self, logits: Tensor, greedy: bool) -> tuple[Tensor, Tensor]:
        """(B,) tokens from logits (B, V), and the log-probability of each."""
        logprobs = (logits / self.policy.generation.temperature).log_softmax(-1)
        tokens = logprobs.argmax(-1) if greedy else self._drawn(logprobs)
        return tokens, logprobs.gather(1, tokens[:, None]).squeeze(-1)

    def _drawn(self, logprobs: Tensor) -> Tensor:
        # By the distribution function, with one random number a row: `torch.multinomial` draws one for each of the n.
        wide = torch.float32 if logprobs.device.type == "mps" else torch.float64
        function = logprobs.exp().to(wide).cumsum(-1)
        draws = torch.rand(len(logprobs), 1, dtype=wide, device=logprobs.device, generator=self.policy.generator)
        found = torch.searchsorted(function, draws * function[:, -1:], right=True)
        return found.squeeze(-1).clamp(max=logprobs.shape[-1] - 1)
