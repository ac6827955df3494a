"""Does it learn? Trains from the bundled model with the defaults and evaluates greedy play, seed by seed.

    python -m benchmarks.learning --seeds 5 --minutes 10

Runs the command line as a user would. Evaluation hands come from seeds that no training sees. The last line is the
median of the greedy mean returns.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
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
    hands: Annotated[int, typer.Option(help="Episodes of each evaluation.")] = 20_000,
    threads: Annotated[str, typer.Option(help="As of train.")] = "auto",
) -> None:
    """Train and evaluate, one seed after the other."""
    found = []
    for seed in range(first_seed, first_seed + seeds):
        with tempfile.TemporaryDirectory() as folder:
            run_dir = str(Path(folder) / "run")
            options = ["--seed", str(seed), "--minutes", str(minutes), "--threads", threads, "--run-dir", run_dir]
            trained = summary("train", agent, *options)
            options = ["--model", run_dir, "--episodes", str(hands), "--greedy", "--seed", str(EVALUATION_SEED)]
            played = summary("eval", agent, *options, "--threads", threads)
            variance = last_explained_variance(Path(run_dir) / "events.jsonl")
        found.append(played["mean_return"])
        print(
            f"seed {seed}: greedy {played['mean_return']:+.4f} ± {played['return_stderr']:.4f} over {hands}"
            f" hands, parse failures {played['parse_failure_rate']:.2%}, explained variance {variance:+.2f};"
            f" {trained['episodes']} episodes and {trained['updates']} updates in {trained['elapsed_s']:.0f} s,"
            f" {trained['episodes_per_s']:.0f} episodes/s",
            flush=True,
        )
    print(f"median greedy return {statistics.median(found):+.4f}, worst {min(found):+.4f}")


def summary(*command: str) -> dict[str, Any]:
    """The JSON line that a command ends with."""
    done = subprocess.run(
        [sys.executable, "-m", "llamagym_tui", *command, "--json"], stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout.strip().splitlines()[-1])


def last_explained_variance(events: Path, updates: int = 10) -> float:
    """Mean over the last updates of a run."""
    found = [
        event["stats"]["explained_variance"]
        for event in map(json.loads, events.read_text().splitlines())
        if event["type"] == "UpdateFinished"
    ]
    return statistics.fmean(found[-updates:]) if found else 0.0


if __name__ == "__main__":
    typer.run(main)
