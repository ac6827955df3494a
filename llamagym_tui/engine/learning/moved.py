"""The episode that an update moved most: the largest sum of |advantage x (ratio - 1)| over its decisions.

Ratios are those that the update has at hand, of each decision as it was scored last: no forward is made for them.
"""

import math
from itertools import takewhile
from operator import eq
from typing import Any

import torch
from torch import Tensor

from llamagym_tui.engine.learning.distinguished import observation_ids
from llamagym_tui.engine.learning.inspection import UsedBatch
from llamagym_tui.engine.tokens.tokenization import ChatTokenizer


def moved_most(chat: ChatTokenizer, used: UsedBatch, log_ratios: list[tuple[Tensor, Tensor]]) -> dict[str, Any] | None:
    """The fields of a `MovedEpisode` event, by `UpdateSums.log_ratios`; None: nothing was moved, or not by a number."""
    turns = [turn for trajectory in used.trajectories for turn in trajectory.turns]
    lengths = [len(turn.decision_logprobs) for turn in turns]
    log_ratio, advantages = torch.zeros(sum(lengths)), used.targets.advantages.cpu()
    for decisions, scored in log_ratios:
        log_ratio[decisions.cpu()] = scored.cpu()
    of_turns = torch.arange(len(turns)).repeat_interleave(torch.tensor(lengths, dtype=torch.long))
    if used.credit == "turn":
        advantages = advantages[of_turns]
    shifts = (advantages * log_ratio.expm1()).abs()
    moved = iter(torch.zeros(len(turns)).index_add(0, of_turns, shifts).tolist())
    by_turn = [[next(moved) for _ in trajectory.turns] for trajectory in used.trajectories]
    sums = [sum(each) for each in by_turn]
    if not math.isfinite(sum(sums)) or not sum(sums):
        return None
    most = max(range(len(sums)), key=sums.__getitem__)
    trajectory, number = used.trajectories[most], max(range(len(by_turn[most])), key=by_turn[most].__getitem__)
    first = sum(len(each.turns) for each in used.trajectories[:most]) + number
    turn, old = turns[first], sum(turns[first].decision_logprobs)
    pairs = [(segment, ids) for segment in trajectory.segments for ids in observation_ids(chat, segment)]
    segment, ids = pairs[number]
    after_it = sum(takewhile(bool, map(eq, reversed(ids), reversed(chat.continuation("", ended=True)))))
    return {
        "episode": trajectory.episode,
        "episode_return": trajectory.episode_return,
        "moved": sums[most],
        "of_batch": sum(sums),
        "turn": len(trajectory.earlier) + number,
        "observation": chat.text(ids[: len(ids) - after_it]).strip()[:160],
        "reply": chat.text(segment.ids[turn.start : turn.end])[:160],
        "advantage": float(advantages.split(lengths)[first].mean()),
        "before": math.exp(old),
        "after": math.exp(min(0.0, old + float(log_ratio.split(lengths)[first].sum()))),
    }
