"""A reply looked at token by token: how probable it is now, and what an update made of it.

What an update used is kept by reference and read out, never computed again; present probabilities come from a forward
of their own. Notation: N tokens of the reply, D decisions of a batch, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from llamagym_tui.config import Credit
from llamagym_tui.engine.learning.targets import Targets
from llamagym_tui.engine.policy.decisions import score_logprobs
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.scoring import reply_logprobs
from llamagym_tui.engine.policy.trajectory import Choice, Segment, Trajectory, Turn
from llamagym_tui.engine.tokens.tokenization import Opening

PLACES_AT_ONCE = 32
"""Tokens whose logits over the vocabulary are held at once."""


@dataclass(frozen=True, slots=True, eq=False)
class UsedBatch:
    """What an update trained on, by reference."""

    update: int
    """Count from 1 since the run began."""
    trajectories: Sequence[Trajectory]
    targets: Targets
    credit: Credit
    clip_range: float
    temperature: float
    """Under which the batch was sampled and scored."""

    def earned(self, trajectory: Trajectory, number: int) -> list[Earned]:
        """Of each decision of a turn: value, return and advantage in the update.

        Args:
            trajectory: one of the batch, the same object.
            number: index of the turn in it.
        Raises:
            ValueError: it is not of this batch.
        """
        turns = decisions = 0
        for other in self.trajectories:
            for at, turn in enumerate(other.turns):
                length = len(turn.decision_logprobs)
                if other is trajectory and at == number:
                    units = [turns] * length if self.credit == "turn" else range(decisions, decisions + length)
                    used = (self.targets.values, self.targets.returns, self.targets.advantages)
                    return [Earned(*(float(figures[unit]) for figures in used)) for unit in units]
                turns, decisions = turns + 1, decisions + length
        raise ValueError("no turn of this batch")


class Earned(NamedTuple):
    """What an update aims at for a decision; shared by the decisions of a turn if credit goes to turns."""

    value: float
    """As estimated by the weights that sampled."""
    target: float
    """The return that the value is drawn to."""
    advantage: float
    """Whitened, if configured."""


class Considered(NamedTuple):
    """A token that could have been sampled."""

    token: int
    probability: float


@dataclass(frozen=True, slots=True)
class TokenNow:
    logprob: float
    """Nats."""
    value: float
    """V before it."""
    alternatives: tuple[Considered, ...]
    """Tokens at its place, the most probable first; its own is among them."""


@dataclass(frozen=True, slots=True)
class ChoiceNow:
    scores: tuple[float, ...]
    """Of each reply: its summed log-probability over its divisor."""
    logprobs: tuple[float, ...]
    """Of choosing each, nats."""


def is_clipped(ratio: float, advantage: float, clip_range: float) -> bool:
    """Whether PPO's surrogate takes its clipped side, so that a decision has no gradient.

    Args:
        ratio: of the probabilities, new over old.
        advantage: of the decision; a ratio that has moved against its sign is not clipped.
        clip_range: bound on the ratio's distance from 1.
    Source: arXiv:1707.06347, eq. 7.
    """
    return min(max(ratio, 1 - clip_range), 1 + clip_range) * advantage < ratio * advantage


@torch.no_grad()
def tokens_now(policy: Policy, segment: Segment, turn: Turn, *, temperature: float, most: int) -> list[TokenNow]:
    """Each token of a reply, by one forward over all that stands before it.

    Args:
        temperature: divides the logits; 1 for a reply that was chosen by score.
        most: alternatives at each place at most, in addition to admissible ones and the token itself.
    """
    ids = segment.ids[turn.start : turn.end]
    encoded = policy.model.backbone.encode_rows(segment.prefix, [segment.ids[: turn.end - 1]])
    places = torch.arange(turn.start - 1, turn.end - 1, device=encoded.hidden.device)
    values = policy.model.v_head(encoded.hidden[0, places]).tolist()
    admissible = [*policy.trie_of(turn.actions).continuations(ids), *[()] * len(ids)]
    found: list[TokenNow] = []
    for part in places.split(PLACES_AT_ONCE):
        logits = encoded.logits_at(torch.zeros_like(part), part)
        for logprobs in (logits / temperature).log_softmax(-1):
            at = len(found)
            others = _alternatives(logprobs, {ids[at], *admissible[at]}, most)
            found.append(TokenNow(float(logprobs[ids[at]]), values[at], others))
    return found


@torch.no_grad()
def choice_now(policy: Policy, segment: Segment, turn: Turn, choice: Choice, *, temperature: float) -> ChoiceNow:
    """The choice that a turn was, among the replies and by the divisors of then; `temperature` divides the scores."""
    prompt = Opening(segment.prefix, tuple(segment.ids[: turn.start]))
    sums = reply_logprobs(policy, [prompt], choice.replies, temperature=1.0)[0]
    divisors = torch.tensor(choice.divisors, device=sums.device)
    logprobs = score_logprobs(sums, divisors, temperature)
    return ChoiceNow(tuple((sums / divisors).tolist()), tuple(logprobs.tolist()))


def _alternatives(logprobs: Tensor, wanted: set[int], most: int) -> tuple[Considered, ...]:
    top = set(logprobs.topk(min(most, len(logprobs))).indices.tolist())
    found = [Considered(token, float(logprobs[token].exp())) for token in top | wanted]
    return tuple(sorted(found, key=lambda other: (-other.probability, other.token)))


def token_text(tokenizer: Any, token: int) -> str:
    """A token as text: special ones by their names, the space before a word included."""
    text = str(tokenizer.decode([token], skip_special_tokens=False))
    # SentencePiece marks the space before a word, and leaves it out where it decodes one token alone.
    marked = str(tokenizer.convert_ids_to_tokens(token)).startswith("\u2581")
    return f" {text}" if marked and not text.startswith(" ") else text
