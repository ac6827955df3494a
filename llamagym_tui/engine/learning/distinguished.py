"""How many observations of a batch the model distinguishes, by its hidden states: no reward can teach what they lack.

Draws no random number of the run's and changes nothing. Why this measure: docs/METRICS.md, "Does it see?".
"""

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple

import torch
from torch import Tensor

from llamagym_tui.engine.learning.packing import PackedRows, Row, batch_rows
from llamagym_tui.engine.model.forward import Encoded
from llamagym_tui.engine.policy.trajectory import Segment, Trajectory
from llamagym_tui.engine.tokens.tokenization import ChatTokenizer

APART = 0.05
"""Part of the states' spread that their distance must exceed to be told apart."""
ROUNDED = 0.005
"""Part of the states' length that it must exceed as well; bf16 rounds less than that away."""
FEWEST = 10
"""Distinct observations below which nothing is concluded."""
MOST = 256
"""Distinct observations that are looked at, at most."""


Encode = Callable[[Sequence[Row]], Iterable[tuple[PackedRows, Encoded]]]
"""Rows as forwards, with what a model says of each."""


class Distinguished(NamedTuple):
    observations: int
    """Distinct observations that were looked at."""
    distinguished: int
    """Those of them that the model tells apart."""
    differing_share: float
    """Share of their states' power that differs between them, from 0 to 1; the rest they have in common."""


@torch.no_grad()
def distinguished(
    chat: ChatTokenizer, trajectories: Sequence[Trajectory], encode: Encode
) -> Distinguished | None:
    """How many observations a policy distinguishes, as its value head reads them; None: there are too few.

    `encode` gives rows as forwards, each with what the policy's model says of it.
    """
    sample = _sample(chat, batch_rows(trajectories))
    if len(sample) < FEWEST:
        return None
    rows = {row.first_turn: row for row, _ in sample}
    turns = {turn for _, turn in sample}
    states: list[Tensor] = []
    for part, encoded in encode(list(rows.values())):
        wanted = [at for at, turn in enumerate(part.turns.indices.tolist()) if turn in turns]
        of_turns = encoded.hidden[part.turns.rows[wanted], part.turns.columns[wanted]]
        states.append(of_turns.float().cpu())
    every = torch.cat(states)
    return Distinguished(len(turns), count_apart(every), differing_share(every))


def differing_share(states: Tensor) -> float:
    """Share of the power of (N, D) states that is not that of their mean."""
    return float((states - states.mean(dim=0)).square().sum() / states.square().sum())


def count_apart(states: Tensor) -> int:
    """How many of (N, D) states are kept if each is kept that is apart from all that were kept before it."""
    spread = (states - states.mean(dim=0)).norm(dim=1).square().mean().sqrt()
    least = max(APART * float(spread), ROUNDED * float(states.norm(dim=1).mean()))
    kept = states[:1]
    for state in states[1:]:
        if float((kept - state).norm(dim=1).min()) > least:
            kept = torch.cat([kept, state[None]])
    return len(kept)


def _sample(chat: ChatTokenizer, rows: Sequence[Row]) -> Collection[tuple[Row, int]]:
    """For each distinct observation a row that has it, and the turn, by its index in the batch."""
    found: dict[tuple[int, ...], tuple[Row, int]] = {}
    for row in random.Random(0).sample(rows, len(rows)):
        for number, observation in enumerate(observation_ids(chat, row.segment)):
            if row.segment.turns[number].is_trained and len(found) < MOST:
                found.setdefault(observation, (row, row.first_turn + number))
    return found.values()


def observation_ids(chat: ChatTokenizer, segment: Segment) -> Iterator[tuple[int, ...]]:
    """Ids of each turn's observation; of a prompt that repeats earlier turns, all after its prefix."""
    end = 0
    for turn in segment.turns:
        ids = segment.ids[end : turn.start]
        template: Sequence[int] = ()
        if end:
            template = chat.continuation("", ended=segment.ids[end - 1] == chat.end_ids[0])
        # What the template writes before an observation is not part of it.
        same = takewhile(lambda pair: pair[0] == pair[1], zip(ids, template, strict=False))
        yield tuple(ids[len(list(same)) :])
        end = turn.end
