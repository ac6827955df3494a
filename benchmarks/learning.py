"""Does it learn? Trains from the bundled model with the defaults and evaluates greedy and sampled play, seed by seed.

    python -m benchmarks.learning --seeds 5 --minutes 10
    python -m benchmarks.learning --agent frozen_lake --seeds 3 --minutes 10 --episodes 1000 --reach 0.95

Runs the command line as a user would. Evaluation episodes come from seeds that training does not see. The last line is
the median of the greedy mean returns; on Frozen Lake a mean return is the share of episodes that reach the goal.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.timing import printed, summary
from llamagym_tui.demos.expert_play import FIRST_SEED

EVALUATION_SEED = 7
APART = 1_000_000
"""Between the first demonstrations of two seeds."""


def main(
    agent: Annotated[str, typer.Option(help="Agent to train.")] = "blackjack",
    seeds: Annotated[int, typer.Option(help="Runs.")] = 5,
    first_seed: Annotated[int, typer.Option(help="Seed of the first run.")] = 1,
    minutes: Annotated[float, typer.Option(help="Of playing and training, each run.")] = 10.0,
    episodes: Annotated[int, typer.Option(help="Of each evaluation.")] = 20_000,
    threads: Annotated[str, typer.Option(help="As of train.")] = "auto",
    reach: Annotated[
        float | None, typer.Option(help="Report when a batch first had this mean return.")
    ] = None,
) -> None:
    found = []
    for seed in range(first_seed, first_seed + seeds):
        with tempfile.TemporaryDirectory() as folder:
            run_dir = Path(folder) / "run"
            limits = (
                "--seed",
                seed,
                "--minutes",
                minutes,
                "--threads",
                threads,
                "--run-dir",
                run_dir,
            )
            trained = summary("train", agent, *limits)
            played = evaluated(agent, run_dir, episodes, threads)
            updates = updates_of(run_dir)
        found.append(played["greedy"]["mean_return"])
        evaluations = ", ".join(
            f"{way} {figures['mean_return']:+.4f} ± {figures['return_stderr']:.4f}"
            f" with {figures['parse_failure_rate']:.2%} parse failures"
            for way, figures in played.items()
        )
        variance = [update["stats"]["explained_variance"] for update in updates[-10:]]
        print(
            f"seed {seed}: {evaluations} over {episodes} episodes each;"
            f" explained variance {statistics.fmean(variance or [0.0]):+.2f};"
            f" {trained['episodes']} episodes and {trained['updates']} updates in {trained['elapsed_s']:.0f} s,"
            f" {trained['episodes_per_s']:.0f} episodes/s",
            flush=True,
        )
        if reach is not None:
            print(f"seed {seed}: {first_reached(updates, reach)}", flush=True)
    print(f"median greedy return {statistics.median(found):+.4f}, worst {min(found):+.4f}")


def evaluated(
    agent: str, model: Path, episodes: int, threads: str, seed: int = EVALUATION_SEED
) -> dict[str, dict[str, Any]]:
    """Summaries of greedy and of sampled play."""
    words = ("--model", model, "--episodes", episodes, "--seed", seed, "--threads", threads)
    return {way: summary("eval", agent, *words, f"--{way}") for way in ("greedy", "sampled")}


def expert_file(path: Path, agent: str, episodes: int, seed: int, env: Sequence[str] = ()) -> Path:
    """Episodes of an agent's expert, which those of no other seed are.

    Args:
        path: of the file to write.
        env: options that name the environment's keyword arguments.
    """
    first = ("--episodes", episodes, "--seed", FIRST_SEED + APART * seed)
    printed("demos", "generate", agent, *env, *first, "--out", path)
    return path


def updates_of(run_dir: Path) -> list[dict[str, Any]]:
    """A run's `UpdateFinished` events, in order."""
    events = map(json.loads, (run_dir / "events.jsonl").read_text(encoding="utf-8").splitlines())
    return [event for event in events if event["type"] == "UpdateFinished"]


def first_reached(updates: Sequence[dict[str, Any]], mean_return: float) -> str:
    """When the sampled play of a batch first had a mean return, in words."""
    for event in updates:
        if event["stats"]["mean_return"] >= mean_return:
            return f"{mean_return} reached by the batch of update {event['update']}, after {event['at_s']:.0f} s"
    return f"{mean_return} not reached by any batch"


if __name__ == "__main__":
    typer.run(main)
