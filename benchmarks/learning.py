"""Does it learn? Trains from the bundled model with the defaults and evaluates greedy and sampled play, seed by seed.

    python -m benchmarks.learning --seeds 5 --minutes 10
    python -m benchmarks.learning --agent frozen_lake --seeds 3 --minutes 10 --episodes 1000 --reach 0.95

Runs the command line as a user would. Evaluation episodes come from seeds that no training sees. The last line is the
median of the greedy mean returns; on Frozen Lake a mean return is the share of episodes that reach the goal.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

FIRST_SEED = 1
EVALUATION_SEED = 7


def main(
    agent: Annotated[str, typer.Option(help="Agent to train.")] = "blackjack",
    seeds: Annotated[int, typer.Option(help="Runs.")] = 5,
    first_seed: Annotated[int, typer.Option(help="Seed of the first run.")] = FIRST_SEED,
    minutes: Annotated[float, typer.Option(help="Of playing and training, each run.")] = 10.0,
    episodes: Annotated[int, typer.Option(help="Of each evaluation.")] = 20_000,
    threads: Annotated[str, typer.Option(help="As of train.")] = "auto",
    reach: Annotated[float | None, typer.Option(help="Tell when a batch's mean return first was so high.")] = None,
) -> None:
    """Train and evaluate, one seed after the other."""
    found = []
    for seed in range(first_seed, first_seed + seeds):
        with tempfile.TemporaryDirectory() as folder:
            run_dir = Path(folder) / "run"
            options = ["--seed", str(seed), "--minutes", str(minutes), "--threads", threads, "--run-dir", str(run_dir)]
            trained = summary("train", agent, *options)
            options = ["--model", str(run_dir), "--episodes", str(episodes), "--seed", str(EVALUATION_SEED)]
            played = {
                way: summary("eval", agent, *options, f"--{way}", "--threads", threads) for way in ("greedy", "sampled")
            }
            updates = updates_of(run_dir)
        found.append(played["greedy"]["mean_return"])
        evaluations = ", ".join(
            f"{way} {figures['mean_return']:+.4f} ± {figures['return_stderr']:.4f}"
            f" with {figures['parse_failure_rate']:.2%} parse failures"
            for way, figures in played.items()
        )
        print(
            f"seed {seed}: {evaluations} over {episodes} episodes each;"
            f" explained variance {last_explained_variance(updates):+.2f};"
            f" {trained['episodes']} episodes and {trained['updates']} updates in {trained['elapsed_s']:.0f} s,"
            f" {trained['episodes_per_s']:.0f} episodes/s",
            flush=True,
        )
        if reach is not None:
            print(f"seed {seed}: {first_reached(updates, reach)}", flush=True)
    print(f"median greedy return {statistics.median(found):+.4f}, worst {min(found):+.4f}")


def summary(*command: str) -> dict[str, Any]:
    """The JSON line that a command ends with."""
    done = subprocess.run(
        [sys.executable, "-m", "llamagym_tui", *command, "--json"], stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout.strip().splitlines()[-1])


def updates_of(run_dir: Path) -> list[dict[str, Any]]:
    """A run's events of updates, in order."""
    events = map(json.loads, (run_dir / "events.jsonl").read_text().splitlines())
    return [event for event in events if event["type"] == "UpdateFinished"]


def last_explained_variance(updates: Sequence[dict[str, Any]], count: int = 10) -> float:
    """Mean over the last updates of a run."""
    found = [event["stats"]["explained_variance"] for event in updates]
    return statistics.fmean(found[-count:]) if found else 0.0


def first_reached(updates: Sequence[dict[str, Any]], mean_return: float) -> str:
    """When the sampled play of a batch first had a mean return, in words."""
    for event in updates:
        if event["stats"]["mean_return"] >= mean_return:
            return f"{mean_return} reached by the batch of update {event['update']}, after {event['at_s']:.0f} s"
    return f"{mean_return} not reached by any batch"


if __name__ == "__main__":
    typer.run(main)
