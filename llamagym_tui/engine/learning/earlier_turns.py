"""Finds how many earlier turns a prompt needs: those that foretell better than the present observation alone.

A first batch is played by prompts without earlier turns, and two regressions are compared on it. Both know the state
of the model after the present observation, the action, and the number of the turn. One of them knows the states and
actions of earlier turns as well. Each foretells the reward, the return and the next observation of episodes that were
kept back. Where the past foretells nothing better than chance does, the observation has all that a policy can use.

Notation: N turns in E episodes, D hidden size.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from llamagym_tui.engine.learning import foretelling
from llamagym_tui.engine.learning.packing import batch_rows
from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.policy.trajectory import Trajectory

NEXT_COMPONENTS = 4
"""Of them those that are foretold of the next observation."""
MOST_TURNS = 600
"""Turns that are looked at, at most, in whole episodes."""
FEWEST_EPISODES = 10
"""Episodes below which nothing is concluded."""
CANDIDATES = (1, 2, 4, 8, 16)
"""Numbers of earlier turns that are tried; the last one stands for all of them."""
CERTAIN = 3.0
"""Standard errors by which the error of the foretold must fall."""
LEAST_GAINS = (0.05, 0.05, 0.2)
"""Share of what the observation leaves unexplained of reward, return and next observation that earlier turns must
explain. Of the next observation it is more: regressions on few turns gain a little from all that goes with it."""
NEAR_TURNS = 0.2
"""Share of the longest episode in which turns count as of about the same number."""


class Played(NamedTuple):
    """An episode of the first batch."""

    states: Tensor
    """(T, D) after each prompt, which has the observation alone."""
    actions: Tensor
    """(T,) a number for each action; -1: the reply named none."""
    rewards: Tensor
    """(T,)."""


class Found(NamedTuple):
    turns: int | None
    """The number of earlier turns that help. None: all."""
    reason: str
    """For people, with their number."""


@torch.no_grad()
def episodes_of(learner: PPO, trajectories: Sequence[Trajectory]) -> list[Played]:
    """Episodes that the learner's policy played alone, with the states of its model, up to `MOST_TURNS`."""
    sample: list[Trajectory] = []
    turns = 0
    for trajectory in trajectories:
        if 0 < trajectory.own_turns == len(trajectory.turns) and turns < MOST_TURNS:
            sample.append(trajectory)
            turns += trajectory.own_turns
    of_turns: dict[int, Tensor] = {}
    for part, encoded in learner.steps.encoded(batch_rows(sample)):
        states = encoded.hidden[part.turns.rows, part.turns.columns].float().cpu()
        of_turns |= zip(part.turns.indices.tolist(), states, strict=True)
    played: list[Played] = []
    first = 0
    for trajectory in sample:
        last = first + len(trajectory.turns)
        actions = [
            -1 if turn.parse_failed else hash(tuple(segment.ids[turn.start : turn.end]))
            for segment in trajectory.segments
            for turn in segment.turns
        ]
        played.append(
            Played(
                torch.stack([of_turns[turn] for turn in range(first, last)]),
                torch.tensor(actions),
                torch.tensor([turn.reward for turn in trajectory.turns]),
            )
        )
        first = last
    return played


def turns_that_help(episodes: Sequence[Played]) -> Found | None:
    """The number of earlier turns that a prompt needs. None: there are too few episodes to tell."""
    sample = _sample(episodes)
    if len(sample) < FEWEST_EPISODES:
        return None
    problem = _Problem(sample)
    helping = problem.turns_that_help()
    if helping:
        turns, gain = helping
        explained = f"they explain {gain:.0%} of what the observation leaves open"
        if turns == CANDIDATES[-1] and problem.longest > turns:
            return Found(None, f"prompts have all earlier turns: {explained}")
        needed = min(turns, problem.longest)
        noun = "earlier turn" if needed == 1 else "earlier turns"
        return Found(needed, f"prompts have {needed} {noun}: {explained}")
    if sum(len(each.rewards) for each in sample) < MOST_TURNS:
        return None
    return Found(
        0,
        "prompts have no earlier turns: with them the first batch's rewards, returns and next observations are not "
        "foretold better than by the observation alone",
    )


def _sample(episodes: Sequence[Played]) -> list[Played]:
    """The beginnings of episodes, `MOST_TURNS` turns in all, of `FEWEST_EPISODES` at least."""
    most = max(MOST_TURNS // FEWEST_EPISODES, MOST_TURNS // max(len(episodes), 1))
    found: list[Played] = []
    turns = 0
    for each in episodes:
        if turns >= MOST_TURNS:
            break
        short = Played(*(of_turns[:most] for of_turns in each))
        found.append(short)
        turns += len(short.rewards)
    return found


class _Problem:
    """The numbers that are foretold of each turn, and the likeness of turns by which they are."""

    def __init__(self, episodes: Sequence[Played]) -> None:
        lengths = [len(each.rewards) for each in episodes]
        self.longest = max(lengths) - 1
        """Earlier turns of the longest episode's last turn."""
        self._count = len(episodes)
        self._episode = torch.arange(self._count).repeat_interleave(torch.tensor(lengths))  # (N,)
        self._turn = torch.cat([torch.arange(length) for length in lengths])  # (N,)
        states = torch.cat([each.states for each in episodes]).double()
        components = foretelling.components(states)
        actions = torch.cat([each.actions for each in episodes])
        self._similar = foretelling.similar(components)  # (N, N)
        self._alike = (1 + (actions[:, None] == actions[None]).double()) / 2  # (N, N)
        apart = (self._turn[:, None] - self._turn[None]) / max(lengths)
        self._similar_turn = (-(apart.double() ** 2) / (2 * NEAR_TURNS**2)).exp()
        rewards = [each.rewards.double() for each in episodes]
        returns = [of_turns.flip(0).cumsum(0).flip(0) for of_turns in rewards]
        self._paid = torch.stack([torch.cat(rewards), torch.cat(returns)], dim=1)  # (N, 2)
        self._after = components.roll(-1, dims=0)[:, :NEXT_COMPONENTS]  # (N, M)
        self._goes_on = self._episode == self._episode.roll(-1)
        self._goes_on[-1] = False

    def turns_that_help(self) -> tuple[int, float] | None:
        """The fewest earlier turns than which no larger number is better, and their gain. None: none help."""
        alone = self._errors(0)
        helping: dict[int, tuple[float, Tensor]] = {}
        for turns in CANDIDATES:
            if turns > 1 and turns // 2 >= self.longest:
                break
            errors = self._errors(min(turns, self.longest))
            gain = self._gain(alone, errors)
            if gain:
                helping[turns] = gain, errors
        for turns, (gain, errors) in helping.items():
            more = [others for number, (_, others) in helping.items() if number > turns]
            if not any(self._gain(errors, others) for others in more):
                return turns, gain
        return None

    def _errors(self, turns: int) -> Tensor:
        """(N, 3) squared errors of reward, return and next observation, foretold from other episodes."""
        kernel = self._kernel(turns)
        fold = self._episode % foretelling.FOLDS
        paid = foretelling.errors(kernel, self._paid, torch.ones_like(self._goes_on), fold)
        after = foretelling.errors(kernel, self._after, self._goes_on, fold)
        return torch.cat([paid, after.mean(1, keepdim=True)], dim=1)

    def _kernel(self, turns: int) -> Tensor:
        """(N, N) likeness of turns: in their state and action, in their number, and in this many earlier turns."""
        kernel = self._alike * (self._similar + self._similar_turn + 1)
        if not turns:
            return kernel
        past = torch.zeros_like(kernel)
        every = torch.arange(len(self._turn))
        of_turn = self._similar * self._alike
        for lag in range(1, turns + 1):
            before = (every - lag).clamp(min=0)
            is_there = self._turn >= lag
            past += of_turn[before][:, before] * (is_there[:, None] & is_there[None])
        # What was said before may mean one thing with one action, and another at another observation.
        return kernel + past * self._alike * (1 + self._similar) / 2

    def _gain(self, alone: Tensor, with_past: Tensor) -> float:
        """The largest share of the (N, 3) errors that falls away with the past; 0 where that may be chance."""
        fall = alone - with_past
        of_episode = fall.new_zeros(self._count, fall.shape[1]).index_add(0, self._episode, fall)
        chance = of_episode.std(0) * math.sqrt(self._count)
        shares = fall.sum(0) / alone.sum(0).clamp(min=1e-9)
        is_certain = fall.sum(0) >= CERTAIN * chance
        is_enough = shares >= torch.tensor(LEAST_GAINS)
        return float((shares * (is_certain & is_enough)).max())
