"""Are twenty hands of a person enough to see a change? P(hit) by total before and after a warm start on them alone.

    python -m benchmarks.twenty_hands
    python -m benchmarks.twenty_hands --stick-from 18 --seed 3

A person who sticks from some total on, and hits below it, plays at the human table; the bundled model is then trained
on that file as the trainer does it, with the default settings. P(hit) is exact: the mean over the dealer's ten cards on
the first turn, so most of these states were never demonstrated. The figure is the mean distance to the person's own hit
rate over the totals that were demonstrated, each counted as often as it was.
"""

from __future__ import annotations

import re
import tempfile
from collections import defaultdict
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from statistics import fmean
from typing import Annotated, NamedTuple

import torch
import typer

from benchmarks.hit_probabilities import hit_probabilities
from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.config import RunConfig
from llamagym_tui.demos import files as demo_files
from llamagym_tui.demos.files import DemoWriter
from llamagym_tui.demos.human_game import HumanGame
from llamagym_tui.demos.training_data import training_data
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.trainer.builders import Builders

STICK = 0
HIT = 1
Total = tuple[int, int]
"""The player's total, and whether an ace in it counts 11."""


class Change(NamedTuple):
    """What a warm start has changed."""

    person: dict[Total, float]
    """Share of the person's turns on each total in which they hit."""
    turns: dict[Total, int]
    """Number of the person's turns on each total."""
    before: dict[Total, float]
    """P(hit) of the model that the run began with, mean over the dealer's cards."""
    after: dict[Total, float]
    """The same after the warm start."""
    elapsed_s: float
    """Of the warm start."""

    def distance(self, hits: dict[Total, float]) -> float:
        """Mean over the person's turns of how far a hit rate is from theirs."""
        return fmean(
            abs(hits[at] - self.person[at])
            for at, turns in self.turns.items()
            for _ in range(turns)
        )


def main(
    hands: Annotated[int, typer.Option(help="That the person plays.")] = 20,
    stick_from: Annotated[int, typer.Option(help="Total from which on the person sticks.")] = 14,
    seed: Annotated[int, typer.Option(help="Of the cards, and of the training.")] = 11,
) -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        found = change(Path(folder), hands=hands, stick_from=stick_from, seed=seed)
    print("total  turns  person  before  after")
    for at in sorted(found.turns, key=lambda at: (at[1], at[0])):
        rates = f"{found.person[at]:>7.2f} {found.before[at]:>7.2f} {found.after[at]:>6.2f}"
        print(f"{at[0]:<2}{' ace' if at[1] else '    '} {found.turns[at]:>5} {rates}")
    before, after = found.distance(found.before), found.distance(found.after)
    print(f"distance to the person {before:.3f} → {after:.3f}, warm start {found.elapsed_s:.0f} s")


def change(folder: Path, *, hands: int, stick_from: int, seed: int) -> Change:
    """Let a person play and the model learn from it, in a folder; arguments as of `main`."""
    path = folder / "person.jsonl"
    (folder / "run").mkdir()
    turns = played(path, hands=hands, stick_from=stick_from, seed=seed)
    builders = Builders(
        RunConfig(agent="blackjack", run_dir=str(folder / "run"), seed=seed, threads=1)
    )
    agent = builders.agent()
    loaded = builders.model()
    policy = builders.policy(agent, loaded)
    before = hits_by_total(policy)
    stats = builders.warm_start(
        policy,
        builders.learner(policy),
        training_data(agent, path),
        progress=lambda step, steps, loss: None,
        should_stop=lambda: False,
    )
    person = {at: fmean(taken) for at, taken in turns.items()}
    counts = {at: len(taken) for at, taken in turns.items()}
    return Change(person, counts, before, hits_by_total(policy), stats.elapsed_s)


def played(path: Path, *, hands: int, stick_from: int, seed: int) -> dict[Total, list[int]]:
    """Hands at the human table, recorded; the person's actions by total."""
    seeds = count(1000 * seed)
    agent, turns = BlackjackAgent(), defaultdict[Total, list[int]](list)
    game = HumanGame(
        agent,
        "blackjack",
        DemoWriter(path),
        system_prompt=agent.get_system_prompt,
        next_seed=lambda: next(seeds),
        clock=lambda: datetime.now(UTC),
    )
    game.open()
    for _ in range(hands):
        game.deal()
        while not game.over:
            total, ace = read(game.messages[-1]["content"])
            action = STICK if total >= stick_from else HIT
            turns[total, ace].append(action)
            game.act(action)
        game.writer.save()
    game.close()
    assert len(demo_files.read(path)) == hands
    return dict(turns)


def read(observation: str) -> Total:
    shown = re.match(r"Your total: (\d+)\. Usable ace: (yes|no)\.", observation)
    assert shown is not None, observation
    return int(shown[1]), int(shown[2] == "yes")


def hits_by_total(policy: Policy) -> dict[Total, float]:
    """P(hit) on each total, mean over the dealer's cards."""
    found = defaultdict[Total, list[float]](list)
    for (total, _, ace), share in hit_probabilities(
        policy, BlackjackAgent().get_system_prompt()
    ).items():
        found[total, int(ace)].append(share)
    return {at: fmean(shares) for at, shares in found.items()}


if __name__ == "__main__":
    typer.run(main)
