"""Batched replies with exact ids, log-probabilities and values: sampled token by token, or chosen by score.

The textbook samples a reply with one forward for each of its tokens. But most replies are among the few admissible
ones ("hit", "stick"), and a forward of ten tokens costs hardly more than a forward of one. So the admissible replies of
a turn are computed ahead, as a tree behind its prompt in the same forward as the prompt, and what the sampler draws is
looked up there: at each node, the hidden state gives the distribution of the token that follows. A reply that stays on
the tree needs no further forward, one that leaves it is continued token by token, as in the textbook.

That is exact: every token is drawn from the whole distribution, given all tokens before it, and a reply may leave the
tree at any token. Computing ahead changes when hidden states are computed, not what they are. Under the score policy
nothing is drawn token by token: the tree gives the log-probability of every admissible reply, and one of them is drawn.

Conversations that begin with equal prompts are computed once for as long as the policy is the same, and stand in slots
only from where they part.

Notation: B conversations, M nodes of the largest tree, V vocabulary, A admissible replies, N their tokens in all.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from llamagym_tui.engine.model.forward import Encoded
from llamagym_tui.engine.model.narrow import NarrowEncoded
from llamagym_tui.engine.own_torch import own_torch
from llamagym_tui.engine.policy.decisions import score_logprobs
from llamagym_tui.engine.policy.fixed_trunk import ReplyEncoded, states_of
from llamagym_tui.engine.policy.known_tokens import Key, PromptMemory
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.slots import PlainSlots, Slots
from llamagym_tui.engine.policy.trajectory import Choice
from llamagym_tui.engine.tokens.token_tree import ROOT, ActionTrie, TokenTree
from llamagym_tui.engine.tokens.tokenization import Opening

LARGEST_AHEAD = 64
"""Tokens of admissible replies up to which they are computed ahead of sampling."""
LEAST_GAIN = 0.5
"""Tokens of a reply, on average, that must be found on the tree for computing ahead to be worth it."""
TRY_AGAIN = 50
"""Calls without computing ahead, after which it is tried again: replies may follow the format again."""
NOTHING = TokenTree()
"""The tree that is computed ahead where that is not worth it: an empty one."""
LOGITS_AT_ONCE = 2**25
"""Numbers in the logits of scored replies at most, in one piece."""


@dataclass(slots=True)
class Reply:
    ids: list[int] = field(default_factory=list)
    """Sampled ids, the end of the turn included if it was sampled."""
    logprobs: list[float] = field(default_factory=list)
    """Log-probability of each id, temperature applied."""
    value: float = 0.0
    """V at the prompt's last token."""
    ended: bool = False
    """Whether the policy ended its turn itself, within the allowed tokens."""
    choice: Choice | None = None
    """How the reply was chosen by score; None: it was sampled token by token."""


class Ahead(NamedTuple):
    """What was computed of prompts and of the admissible replies behind them."""

    encoded: Encoded
    """B rows of 1 + M columns: the prompt's last token, then the nodes of its tree."""
    trees: Sequence[TokenTree]
    """The tree behind each prompt; its node k is in column 1 + k, and `ROOT`, -1, is the prompt's last token."""


@dataclass(slots=True)
class Conversation:
    """The ids of a conversation, by which its prompts are found in the memory."""

    prefix: tuple[int, ...]
    ids: list[int] = field(default_factory=list)
    """All ids behind the prefix that the model has read: prompts and replies, but for a reply's last id."""
    is_held: bool = False
    """Whether its slot holds the keys and values of these ids. Else all that was asked for was in the memory."""


class Lookahead(NamedTuple):
    """Whether computing admissible replies ahead has been worth it."""

    gain: float = float(LARGEST_AHEAD)
    """Tokens of a reply that were found on the tree: a running mean."""
    rests: int = 0
    """Calls since the tree was last computed."""


class Sampler:
    """Continues conversations, each in a slot of its own, and replies to them."""

    def __init__(self, policy: Policy, slots: int) -> None:
        self.policy = policy
        self.lookahead = Lookahead()
        self.count = slots
        """Conversations that may be under way at once."""
        self._conversations: defaultdict[int, Conversation] = defaultdict(lambda: Conversation(()))
        """The conversation of each slot."""
        self.forget()
        self._version = policy.version

    def restart(self, slot: int, prefix: tuple[int, ...]) -> None:
        """Begin a conversation in a slot, with a prefix that is computed once per policy version."""
        if self._version != self.policy.version:
            self._version = self.policy.version
            if self.policy.narrow is None:
                self._slots.forget()
                self.memory.clear()
        self._conversations[slot] = Conversation(prefix)

    def forget(self) -> None:
        """Drop all that was computed; each conversation must begin with its whole prompt."""
        # Its counts, too: a resumed run has none. What a fixed trunk said is the same for ever, but for rounding.
        self.memory = PromptMemory() if self.policy.narrow is None else self.policy.memory
        backbone = self.policy.model.backbone
        kind = Slots if backbone.shares else PlainSlots
        self._slots = kind(backbone, self.count)
        self._conversations.clear()

    @own_torch()
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

            # 1. One forward of the prompts and their trees. V of each prompt is read at its last token.
            ahead, computed = self._ahead(slots, prompts, trees, tries)
            values = self.policy.values(ahead.encoded.hidden[:, 0])
            replies = [Reply(value=value) for value in values]

            # 2. Replies as far as they are on the trees, with no further forward.
            if is_chosen:
                paths = self._choose(ahead, tries, replies, greedy, on_token)
                astray: list[int] = []
            else:
                paths, astray = self._walk(ahead, replies, greedy, on_token)

            # 3. Conversations go on behind their prompts and replies. The last id of a reply has not been through the
            # model, and is on no path: the next prompt begins with it.
            self._slots.keep(
                [slots[index] for index in computed],
                [trees[index] for index in computed],
                [paths[index] for index in computed],
            )
            held = set(computed)
            for index, slot in enumerate(slots):
                conversation = self._conversations[slot]
                conversation.is_held = index in held
                conversation.ids += [*prompts[index], *replies[index].ids[: len(paths[index])]]

            # 4. Replies that left their trees, token by token.
            left_trees = list(astray)
            while astray:
                last_ids = [replies[index].ids[-1] for index in astray]
                logits = self._appended([slots[index] for index in astray], last_ids)
                astray = self.extend(logits, replies, astray, greedy, on_token)
            for index in left_trees:
                on_tree = len(paths[index])
                self._conversations[slots[index]].ids += replies[index].ids[on_tree:-1]
            return replies

    def _ahead(
        self,
        slots: Sequence[int],
        prompts: Sequence[Sequence[int]],
        trees: Sequence[TokenTree],
        tries: Sequence[ActionTrie],
    ) -> tuple[Ahead, list[int]]:
        """What follows each prompt, and the indices of those that were computed for it: these are in their slots."""
        narrow = self.policy.narrow
        trie = tries[0]
        conversations = [self._conversations[slot] for slot in slots]
        begins = not any(conversation.ids for conversation in conversations)
        is_fixed = narrow is not None
        if is_fixed and begins and all(tree is trie.tree for tree in trees):
            openings = [
                Opening(conversation.prefix, tuple(prompt))
                for conversation, prompt in zip(conversations, prompts, strict=True)
            ]
            return Ahead(states_of(self.policy, openings, trie, self.memory), trees), []
        computed: list[int] = []

        def compute(indices: list[int]) -> Encoded:
            computed.extend(indices)
            encoded = self._prefilled(
                [slots[at] for at in indices],
                [prompts[at] for at in indices],
                [trees[at] for at in indices],
            )
            return encoded if narrow is None else narrow.kept(encoded)

        def key(slot: int, prompt: Sequence[int], tree: TokenTree) -> Key:
            conversation = self._conversations[slot]
            # While the trunk is trained, what one conversation came to is hardly met again in another. What a fixed one
            # said is asked for by the update.
            if narrow is None and conversation.is_held:
                return slot
            return (tree, conversation.prefix, (*conversation.ids, *prompt))

        keys = list(map(key, slots, prompts, trees))
        if narrow is None:
            encoded = self.memory.rows(keys, compute)
        else:
            encoded = self.memory.rows(keys, compute, narrow.is_whole)
        return Ahead(encoded, trees), computed

    def _prefilled(
        self, slots: Sequence[int], prompts: Sequence[Sequence[int]], trees: Sequence[TokenTree]
    ) -> Encoded:
        """Append prompts to slots, those of conversations that their slots do not hold with all that came before."""
        whole = list(prompts)
        for at, slot in enumerate(slots):
            conversation = self._conversations[slot]
            if not conversation.is_held:
                self._slots.restart(slot, conversation.prefix)
                whole[at] = [*conversation.ids, *prompts[at]]
                conversation.is_held = True
        return self._slots.prefill(slots, whole, trees)

    def _appended(self, slots: Sequence[int], ids: Sequence[int]) -> Tensor:
        """Append one id to each slot; logits (B, V) of what follows."""
        are_held = all(self._conversations[slot].is_held for slot in slots)
        if isinstance(self._slots, Slots) and are_held:
            return self._slots.append(slots, ids)
        rows = torch.arange(len(slots), device=self.policy.model.backbone.device)
        encoded = self._prefilled(slots, [[token] for token in ids], [NOTHING] * len(slots))
        return encoded.logits_at(rows, torch.zeros_like(rows))

    def _trees_ahead(self, tries: Sequence[ActionTrie]) -> list[TokenTree]:
        """What is computed ahead of sampling: the trees that are not too large, or nothing if that is not worth it."""
        trees = [trie.tree if len(trie.tree) <= LARGEST_AHEAD else NOTHING for trie in tries]
        if any(map(len, trees)) and self._looks_ahead():
            return trees
        return [NOTHING] * len(tries)

    def _looks_ahead(self) -> bool:
        """Whether it has been worth it of late; if not, each call counts until it is tried again at the next."""
        gain, rests = self.lookahead
        if gain >= LEAST_GAIN:
            return True
        is_rested = rests >= TRY_AGAIN
        self.lookahead = Lookahead(LEAST_GAIN) if is_rested else Lookahead(gain, rests + 1)
        return False

    def _walk(
        self, ahead: Ahead, replies: list[Reply], greedy: bool, on_token: Callable[[int, int], None]
    ) -> tuple[list[list[int]], list[int]]:
        """Sample along the tree; the path of each reply on it, and the replies that left it unfinished."""
        paths: list[list[int]] = [[] for _ in replies]
        live = list(range(len(replies)))
        astray: list[int] = []
        device = ahead.encoded.hidden.device

        def node_of(index: int) -> int:
            """The last node of a reply's path; at first the prompt's last token."""
            return paths[index][-1] if paths[index] else ROOT

        def goes_on(index: int) -> bool:
            """Whether the token that a reply just got is on its tree; if not, the walk ends there."""
            child = ahead.trees[index].child(node_of(index), replies[index].ids[-1])
            if child is None:
                astray.append(index)
                return False
            paths[index].append(child)
            return True

        while live:
            nodes = [node_of(index) for index in live]
            at, columns = torch.tensor([live, nodes], device=device)
            logits = ahead.encoded.logits_at(at, columns + 1)  # (B, V)
            live = self.extend(logits, replies, live, greedy, on_token, goes_on)
        if any(map(len, ahead.trees)):
            gain, rests = self.lookahead
            found = sum(map(len, paths)) / len(paths)
            self.lookahead = Lookahead(gain + 0.2 * (found - gain), rests)
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
        # Most environments have the same actions at every turn, so this is mostly one trie and all rows.
        rows_of: dict[ActionTrie, list[int]] = {}
        for row, trie in enumerate(tries):
            rows_of.setdefault(trie, []).append(row)
        paths: list[list[int]] = [[] for _ in replies]
        for trie, rows in rows_of.items():
            divisors = self.policy.reply_divisors(trie)
            token_logprobs = self._token_logprobs(ahead, trie, rows)  # (B, N)
            shares = self._shares(token_logprobs, trie, divisors)  # (B, A)
            chosen = shares.argmax(-1) if greedy else self._drawn(shares)  # (B,)
            # Where each reply's tokens begin among the N.
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
        """(B, N) log-probability of each token of admissible replies, one reply after the other.

        Args:
            ahead: what was computed.
            trie: the admissible replies.
            among: the B rows that have these.
        """
        device = ahead.encoded.hidden.device
        # A token's distribution is that after the node before it, which replies that begin alike have in common. So it
        # is computed once for each of the 1 + M columns, and each of the N tokens is looked up in one of them.
        before = [node for path in trie.paths for node in (ROOT, *path)]
        columns_before = torch.tensor(before, device=device) + 1  # (N,)
        tokens = torch.tensor([token for reply in trie.replies for token in reply], device=device)
        columns = torch.arange(len(trie.tree) + 1, device=device)  # (1 + M,)
        if isinstance(ahead.encoded, ReplyEncoded):
            every = torch.arange(len(tokens), device=device)
            return ahead.encoded.logprobs[torch.tensor(among)[:, None], columns_before, every]
        if isinstance(ahead.encoded, NarrowEncoded):
            rows, columns_of_rows = torch.broadcast_tensors(
                torch.tensor(among, device=device)[:, None], columns
            )
            score = ahead.encoded.scorer_at(rows.reshape(-1), columns_of_rows.reshape(-1), 1.0)
            first_place = torch.arange(len(among), device=device)[:, None] * len(columns)
            places = (first_place + columns_before).reshape(-1)
            logprobs, _ = score(places, tokens.repeat(len(among)))
            return logprobs.reshape(len(among), -1)
        # In parts of a few rows, because the logits of all would be large.
        logits_of_row = len(columns) * self.policy.model.backbone.vocabulary
        found: list[Tensor] = []
        size = max(1, LOGITS_AT_ONCE // logits_of_row)
        for part in torch.tensor(among, device=device).split(size):
            rows, columns_of_rows = torch.broadcast_tensors(part[:, None], columns)
            logits = ahead.encoded.logits_at(rows.reshape(-1), columns_of_rows.reshape(-1))
            logprobs = logits.log_softmax(-1).reshape(len(part), len(columns), -1)
            found.append(logprobs[:, columns_before, tokens])
        return torch.cat(found)

    def _shares(
        self, token_logprobs: Tensor, trie: ActionTrie, divisors: Sequence[float]
    ) -> Tensor:
        """(B, A) log-probability of choosing each admissible reply, from those (B, N) of their tokens."""
        device = token_logprobs.device
        # A reply is as probable as all of its tokens together: their log-probabilities add up.
        owners = [reply for reply, ids in enumerate(trie.replies) for _ in ids]  # of each of the N
        sums = token_logprobs.new_zeros(len(token_logprobs), len(trie.replies)).index_add(
            1, torch.tensor(owners, device=device), token_logprobs
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
    ) -> list[int]:
        """Add a token to each live reply; those that are not done.

        Args:
            logits: (B, V) of the next token of each live reply.
            replies: all, of which only the live ones change.
            live: indices of these.
            greedy: take the most probable token.
            on_token: called with (index, token id) as tokens are found.
            goes_on: whether a reply takes another token after its last one.
        """
        most = self.policy.generation.max_new_tokens
        tokens, logprobs = self.sample(logits, greedy)
        going: list[int] = []
        for index, token, logprob in zip(live, tokens.tolist(), logprobs.tolist(), strict=True):
            reply = replies[index]
            reply.ids.append(token)
            reply.logprobs.append(logprob)
            reply.ended = token in self.policy.chat.end_ids
            on_token(index, token)
            if not reply.ended and len(reply.ids) < most and goes_on(index):
                going.append(index)
        return going

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
