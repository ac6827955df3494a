"""How many earlier turns a prompt needs: as many as foretell what comes better than the present observation alone.

A first batch is played by prompts without earlier turns, and two regressions are compared on it. Both know the state
of the model after the present observation, the action, and the number of the turn. One of them knows the states and
actions of earlier turns as well. Each foretells the reward, the return and the next observation of episodes that were
kept back. Where the past foretells nothing better than chance does, the observation has all that a policy can use.

The regressions are kernel ridges. A straight line through the states would miss what several of their parts mean
together, and the past would seem to help. Notation: N turns, D hidden size, K components.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from llamagym_tui.engine.learning.packing import batch_rows
from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.learning.rewards import discounted_returns
from llamagym_tui.engine.policy.trajectory import Trajectory

COMPONENTS = 32
"""Principal components of the states, K, at most."""
NEXT_COMPONENTS = 4
"""Of them those that are foretold of the next observation."""
MOST_TURNS = 600
"""Turns that are looked at, at most, in whole episodes."""
FEWEST_EPISODES = 10
"""Episodes below which nothing is concluded."""
FOLDS = 4
CANDIDATES = (1, 2, 4, 8, 16)
"""Numbers of earlier turns that are tried; the last one stands for all of them."""
CERTAIN = 3.0
"""Standard errors by which the error of the foretold must fall."""
REWARD = "reward"
RETURN = "return"
NEXT = "next observation"
LEAST_GAINS = {REWARD: 0.05, RETURN: 0.05, NEXT: 0.2}
"""Share of what the observation leaves unexplained of each that earlier turns must explain. Of the next observation it
is more: regressions on few turns gain a little from all that goes with it."""
NEAR_TURNS = 0.2
"""Share of the longest episode in which turns count as of about the same number."""
PENALTIES = (0.003, 0.03, 0.3, 3.0)
"""Of the ridge; each regression has the best one for it."""


class Played(NamedTuple):
    """An episode of the first batch."""

    states: Tensor
    """(T, D) after each prompt, which has the observation alone."""
    actions: Tensor
    """(T,) a number for each action; -1: the reply named none."""
    rewards: Tensor
    """(T,)."""
    returns: Tensor
    """(T,) undiscounted sum of the rewards from each turn on."""


class Found(NamedTuple):
    turns: int | None
    """How many earlier turns help. None: all."""
    reason: str
    """For people, with their number."""


Errors = dict[str, Tensor]
"""(N,) squared errors of what is foretold of each turn, in units of its spread, by its name."""


class Gain(NamedTuple):
    """What earlier turns foretell best, and how much better than the observation alone."""

    share: float
    """Of what the observation leaves unexplained."""
    of: str


@torch.no_grad()
def episodes_of(learner: PPO, trajectories: Sequence[Trajectory]) -> list[Played]:
    """Episodes that the learner's policy played alone, with the states of its model; as many as are looked at."""
    sample: list[Trajectory] = []
    turns = 0
    for trajectory in trajectories:
        is_own = all(turn.is_trained for turn in trajectory.turns)
        if is_own and trajectory.turns and turns < MOST_TURNS:
            sample.append(trajectory)
            turns += len(trajectory.turns)
    rows = batch_rows(sample)
    every = sum(len(row.segment.turns) for row in rows)
    states: Tensor | None = None
    for part, encoded in learner.encoded(rows):
        found = encoded.hidden[part.turns.rows, part.turns.columns].float().cpu()
        if states is None:
            states = found.new_zeros(every, found.shape[1])
        states[part.turns.indices.cpu()] = found
    played: list[Played] = []
    numbers: dict[tuple[int, ...], int] = {}  # of the actions, by the replies that name them
    first = 0
    for trajectory in sample:
        assert states is not None, "there are turns"
        actions: list[int] = []
        for segment in trajectory.segments:
            for turn in segment.turns:
                reply = tuple(segment.ids[turn.start : turn.end])
                named = -1 if turn.parse_failed else numbers.setdefault(reply, len(numbers))
                actions.append(named)
        last = first + len(actions)
        rewards = torch.tensor([turn.reward for turn in trajectory.turns])
        to_come = discounted_returns(trajectory, gamma=1.0)  # of the last turn first
        returns = torch.tensor(to_come[: len(actions)]).flip(0)
        played.append(Played(states[first:last], torch.tensor(actions), rewards, returns))
        first = last
    return played


def turns_that_help(episodes: Sequence[Played]) -> Found | None:
    """How many earlier turns a prompt needs. None: there are too few episodes to tell."""
    sample = _sample(episodes)
    if len(sample) < FEWEST_EPISODES:
        return None
    found = _found(sample)
    is_whole = sum(len(each.rewards) for each in sample) >= MOST_TURNS
    return found if found.turns != 0 or is_whole else None


def _found(sample: Sequence[Played]) -> Found:
    problem = _Problem(sample)
    longest = max(len(each.rewards) for each in sample) - 1
    alone = problem.errors(0)
    helping: list[tuple[int, Gain, Errors]] = []
    for turns in CANDIDATES:
        if turns > 1 and turns // 2 >= longest:
            break
        errors = problem.errors(min(turns, longest))
        gain = problem.gain(alone, errors)
        if gain is not None:
            helping.append((turns, gain, errors))
    # The fewest turns than which no larger number is better.
    for place, (turns, gain, errors) in enumerate(helping):
        if not any(problem.gain(errors, more) for _, _, more in helping[place + 1 :]):
            return _of_turns(turns, longest, gain)
    return Found(
        0,
        "prompts have no earlier turns: with them the first batch's rewards, returns and next observations are not "
        "foretold better than by the observation alone",
    )


def _of_turns(turns: int, longest: int, gain: Gain) -> Found:
    explained = (
        f"they explain {gain.share:.0%} of what the observation leaves open of the {gain.of}"
    )
    if turns == CANDIDATES[-1] and longest > turns:
        return Found(None, f"prompts have all earlier turns: {explained}")
    needed = min(turns, longest)
    noun = "earlier turn" if needed == 1 else "earlier turns"
    return Found(needed, f"prompts have {needed} {noun}: {explained}")


def _sample(episodes: Sequence[Played]) -> list[Played]:
    """Whole episodes of `MOST_TURNS` turns in all; at least as many as are needed, of which less is looked at."""
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
    """What is foretold of each turn, and by what."""

    def __init__(self, episodes: Sequence[Played]) -> None:
        lengths = [len(each.rewards) for each in episodes]
        self.count = len(episodes)
        self.episode = torch.arange(self.count).repeat_interleave(torch.tensor(lengths))  # (N,)
        self._turn = torch.cat([torch.arange(length) for length in lengths])  # (N,)
        components = _components(torch.cat([each.states for each in episodes]).double())
        actions = torch.cat([each.actions for each in episodes])
        self._similar = _similar(components)  # (N, N)
        self._alike = (1 + (actions[:, None] == actions[None]).double()) / 2  # (N, N)
        apart = (self._turn[:, None] - self._turn[None]) / max(lengths)
        self._similar_turn = (-(apart.double() ** 2) / (2 * NEAR_TURNS**2)).exp()
        rewards = torch.cat([each.rewards for each in episodes]).double()
        returns = torch.cat([each.returns for each in episodes]).double()
        is_last = torch.zeros(len(self._turn), dtype=torch.bool)
        is_last[torch.tensor(lengths).cumsum(0) - 1] = True
        self._goes_on = ~is_last
        self._paid = torch.stack([rewards, returns], dim=1)  # (N, 2)
        self._after = components.roll(-1, dims=0)[:, :NEXT_COMPONENTS]  # (N, M)

    def errors(self, turns: int) -> Errors:
        """(N,) squared error of each target at each turn, foretold from other episodes, with so many earlier turns."""
        kernel = self._kernel(turns)
        fold = self.episode % FOLDS
        paid = _errors(kernel, self._paid, torch.ones_like(self._goes_on), fold)
        after = _errors(kernel, self._after, self._goes_on, fold)
        return {
            REWARD: _best([errors[:, 0] for errors in paid]),
            RETURN: _best([errors[:, 1] for errors in paid]),
            NEXT: _best([errors.mean(1) for errors in after]),
        }

    def _kernel(self, turns: int) -> Tensor:
        """(N, N) how alike turns are: in their state and action, in their number, and in so many earlier turns."""
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

    def gain(self, alone: Errors, with_past: Errors) -> Gain | None:
        """What is foretold better with the past. None: nothing, as far as chance lets see."""
        best: Gain | None = None
        for name, least in LEAST_GAINS.items():
            fall = alone[name] - with_past[name]  # (N,)
            of_episode = fall.new_zeros(self.count).index_add(0, self.episode, fall)
            chance = float(of_episode.std()) * math.sqrt(self.count)
            gain = float(fall.sum()) / max(float(alone[name].sum()), 1e-9)
            is_certain = float(fall.sum()) >= CERTAIN * chance
            if is_certain and gain >= least and (best is None or gain > best.share):
                best = Gain(gain, name)
        return best


def _errors(kernel: Tensor, values: Tensor, counts: Tensor, fold: Tensor) -> list[Tensor]:
    """For each of the penalties the (N, M) squared errors of values, in units of their spread; 0 where none counts."""
    found = [torch.zeros_like(values) for _ in PENALTIES]
    for held_out in range(FOLDS):
        here = counts & (fold == held_out)
        others = counts & (fold != held_out)
        if not here.any() or not others.any():
            continue
        mean = values[others].mean(0)
        spread = values[others].std(0).clamp(min=1e-9)
        wanted = (values[others] - mean) / spread
        known = kernel[others][:, others]
        across = kernel[here][:, others]
        scale = float(known.diagonal().mean())
        for penalty, errors in zip(PENALTIES, found, strict=True):
            ridge = known + penalty * scale * torch.eye(len(known), dtype=known.dtype)
            weights = torch.cholesky_solve(wanted, torch.linalg.cholesky(ridge))
            errors[here] = (across @ weights - (values[here] - mean) / spread).square()
    return found


def _components(states: Tensor) -> Tensor:
    """(N, K) principal components of states, in units of their largest spread."""
    centred = states - states.mean(0)
    left, lengths, _ = torch.linalg.svd(centred, full_matrices=False)
    count = min(COMPONENTS, int((lengths > 1e-3 * lengths[0].clamp(min=1e-12)).sum()))
    return (left * lengths)[:, : max(count, 1)] / (lengths[0].clamp(min=1e-12) / len(states) ** 0.5)


def _similar(points: Tensor) -> Tensor:
    """(N, N) 1 for equal points, and less the further they are apart: half their typical distance is a length."""
    distances = torch.cdist(points, points).square()
    typical = distances.flatten()[:: max(1, distances.numel() // 10_000)].median().clamp(min=1e-12)
    return (-distances / (0.5 * typical)).exp()


def _best(errors: Sequence[Tensor]) -> Tensor:
    """The errors that are least in all."""
    return min(errors, key=lambda each: float(each.sum()))
