"""Batched sampling of replies, with exact ids, log-probabilities and values.

A sampler has slots; a slot holds one conversation's keys and values and is continued with new ids only, so the k-th
turn costs its own tokens. The system prompt is computed once per policy version and copied into slots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from llamagym_tui.engine.caches import RaggedCache
from llamagym_tui.engine.policy import Policy


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
        """Continue conversations by new prompt ids and sample a reply to each.

        Args:
            slots: B distinct slots, ascending.
            prompts: ids that each slot has not seen yet, at least one.
            greedy: take the most probable token instead of sampling.
            on_token: called with (index into `slots`, token id) as tokens are sampled.
        """
        generation, chat = self.policy.generation, self.policy.chat
        replies = [Reply() for _ in slots]
        rows = torch.tensor(list(slots), device=self._lengths.device)
        live = list(range(len(slots)))
        hidden, logits = self._prefill(rows, prompts)
        for reply, value in zip(replies, self.policy.model.v_head(hidden).tolist(), strict=True):
            reply.value = value
        for step in range(generation.max_new_tokens):
            tokens, logprobs = self._sample(logits, greedy)
            for index, token, logprob in zip(live, tokens.tolist(), logprobs.tolist(), strict=True):
                replies[index].ids.append(token)
                replies[index].logprobs.append(logprob)
                replies[index].ended = token in chat.end_ids
                if on_token is not None:
                    on_token(index, token)
            keep = [position for position, index in enumerate(live) if not replies[index].ended]
            if not keep or step + 1 == generation.max_new_tokens:
                break
            if len(keep) < len(live):
                chosen = torch.tensor(keep, device=rows.device)
                live, rows, tokens = [live[position] for position in keep], rows[chosen], tokens[chosen]
            _, logits = self._forward(rows, tokens[:, None], torch.zeros_like(rows))
        return replies

    def _prefill(self, rows: Tensor, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        width = max(map(len, prompts))
        padded = [list(prompt) + [0] * (width - len(prompt)) for prompt in prompts]
        last = torch.tensor([len(prompt) - 1 for prompt in prompts], device=rows.device)
        return self._forward(rows, torch.tensor(padded, device=rows.device), last)

    def _forward(self, rows: Tensor, ids: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
        """Append ids to slots; hidden states (B, D) and logits (B, V) at the last real id of each.

        Ids past `last` are padding: they are written behind the slot's end and overwritten by what comes next.
        """
        backbone = self.policy.model.backbone
        columns = self._lengths[rows][:, None] + torch.arange(ids.shape[1], device=rows.device)
        width = self._cache.aim(rows, columns)
        encoded = backbone.encode(ids, columns, backbone.causal_mask(columns, width), self._cache)
        self._lengths[rows] += last + 1
        at = torch.arange(len(rows), device=rows.device)
        return encoded.hidden_at(at, last), encoded.logits_at(at, last)

    def _sample(self, logits: Tensor, greedy: bool) -> tuple[Tensor, Tensor]:
        logprobs = (logits / self.policy.generation.temperature).log_softmax(-1)
        if greedy:
            tokens = logprobs.argmax(-1)
        else:
            tokens = torch.multinomial(logprobs.exp(), 1, generator=self.policy.generator).squeeze(-1)
        return tokens, logprobs.gather(1, tokens[:, None]).squeeze(-1)

    def _notice_update(self) -> None:
        """Forget prefixes that older weights computed."""
        if self._version != self.policy.version:
            self._version = self.policy.version
            self._recorded.clear()
            self._prefix_in = [None] * self.slots
