"""What a replay buffer of successes costs and brings: the same run without it and with it, update by update.

    python -m benchmarks.replay_buffer --agent frozen_lake --updates 12 --seeds 2 replay_episodes=256

Times are processor seconds, which other work hardly changes. Runs are compared at the same number of updates; a
batch's mean return is that of sampled play, on Frozen Lake the share of episodes that reach the goal.
"""

from __future__ import annotations

import time
from statistics import fmean
from typing import Annotated, NamedTuple

import typer

from benchmarks.bare_run import BareRun, machine, settings

FIRST_SEED = 11


class Outcome(NamedTuple):
    """One run."""

    returns: list[float]
    """Mean return of each batch."""
    update_s: float
    """Processor seconds of an update, mean; while the critic is trained alone left out."""
    rollout_s: float
    """Processor seconds of a rollout, mean."""
    kept: int
    """Episodes in the buffer at the end."""
    entropy: float
    """Of actions, nats, in the last update."""


def main(
    changes: Annotated[list[str], typer.Argument(help="Settings of PPO for the second run, as name=value.")],
    agent: Annotated[str, typer.Option(help="As of train.")] = "frozen_lake",
    updates: Annotated[int, typer.Option(help="Of each run.")] = 12,
    seeds: Annotated[int, typer.Option(help="Pairs of runs.")] = 2,
    first_seed: Annotated[int, typer.Option(help="Seed of the first pair.")] = FIRST_SEED,
) -> None:
    """Run without and with, seed by seed."""
    print(machine())
    for seed in range(first_seed, first_seed + seeds):
        without = told(seed, "without", played(agent, updates, [f"seed={seed}"]))
        within = told(seed, "with", played(agent, updates, [f"seed={seed}", *(f"ppo.{change}" for change in changes)]))
        print(f"seed {seed}: an update takes {within.update_s / without.update_s:.2f} times as long", flush=True)


def told(seed: int, name: str, found: Outcome) -> Outcome:
    """The same, printed."""
    curve = " ".join(f"{value:+.2f}" for value in found.returns)
    print(
        f"seed {seed} {name:<7} {curve} | rollout {found.rollout_s:.2f} s, update {found.update_s:.2f} s, "
        f"{found.kept} kept, action entropy {found.entropy:.2f}",
        flush=True,
    )
    return found


def played(agent: str, updates: int, words: list[str]) -> Outcome:
    """Play and learn."""
    config = settings(agent, words)
    run = BareRun(config, threads=1)
    returns, update_s, rollout_s, stats = [], [], [], None
    for _ in range(updates):
        at = time.process_time()
        while not run.rollout.batch_ready:
            run.rollout.step()
        rollout_s.append(time.process_time() - at)
        warms_up, at = run.ppo.is_warming_up, time.process_time()
        stats = run.ppo.update(run.rollout.take_batch())
        if not warms_up:
            update_s.append(time.process_time() - at)
        returns.append(stats.mean_return)
    assert stats is not None
    return Outcome(returns, fmean(update_s), fmean(rollout_s), stats.replay_episodes, stats.action_entropy)


if __name__ == "__main__":
    typer.run(main)
