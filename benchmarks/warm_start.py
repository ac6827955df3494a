"""What a supervised start is worth: the base model, SFT alone, RL alone, and SFT before RL, seed by seed.

    python -m benchmarks.warm_start --minutes 0 --episodes 0
    python -m benchmarks.warm_start --agent frozen_lake --demonstrations 50 --episodes 200 --minutes 0
    python -m benchmarks.warm_start --minutes 10

Runs the command line as a user would. Blackjack's greedy return is also computed exactly, from the first-turn choice
in each state. Each seed has expert episodes of its own, and evaluation episodes come from seeds that neither training
nor demonstrations see. With minutes, RL alone and SFT before RL are trained that long, SFT included, and the last line
is the share of RL's time after which SFT before RL had the mean return with which RL alone ended.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import torch
import typer

from benchmarks.exact_blackjack import expected_return
from benchmarks.hit_probabilities import AGENT, hit_probabilities, load_policy
from benchmarks.learning import EVALUATION_SEED, expert_file
from benchmarks.timing import children_s, summary
from llamagym_tui.engine.model.sources import model_folder

RECENT = 5000
"""Training episodes behind a mean that is compared; on Blackjack its standard error is 0.013."""


class Point(NamedTuple):
    """A moment of a run."""

    elapsed_s: float
    """Since the environments were made."""
    recent_mean: float
    """Of the last `RECENT` training episodes."""


def main(
    agent: Annotated[str, typer.Option(help="An agent with an expert.")] = "blackjack",
    seeds: Annotated[int, typer.Option(help="Runs.")] = 3,
    first_seed: Annotated[int, typer.Option(help="Seed of the first run.")] = 1,
    demonstrations: Annotated[int, typer.Option(help="Expert episodes of each seed.")] = 500,
    minutes: Annotated[
        float, typer.Option(help="Of RL, and of SFT with RL after it. 0: neither.")
    ] = 10.0,
    episodes: Annotated[
        int, typer.Option(help="Of each evaluation. 0: none, on Blackjack.")
    ] = 20_000,
    threads: Annotated[str, typer.Option(help="As of train.")] = "1",
) -> None:
    shares = []
    returns: dict[str, list[float]] = {}

    def row(seed: int, what: str, model: str, trained_s: float, cpu: str = "") -> None:
        found = []
        if agent == "blackjack":
            returns.setdefault(what, []).append(exact_return(model))
            found.append(f"exact greedy {returns[what][-1]:+.4f}")
        if episodes:
            options = (
                "--episodes",
                episodes,
                "--greedy",
                "--seed",
                EVALUATION_SEED,
                "--threads",
                threads,
            )
            played = summary("eval", agent, "--model", model, *options)
            if agent != "blackjack":
                returns.setdefault(what, []).append(played["mean_return"])
            found.append(f"greedy {played['mean_return']:+.4f} ± {played['return_stderr']:.4f}")
            found.append(f"parse failures {played['parse_failure_rate']:.2%}")
        print(
            f"seed {seed}: {what:<9}{', '.join(found)}, trained {trained_s:.0f} s{cpu}", flush=True
        )

    for seed in range(first_seed, first_seed + seeds):
        with tempfile.TemporaryDirectory() as folder:
            place, common = Path(folder), ("--seed", seed, "--threads", threads)
            file = expert_file(place / "expert.jsonl", agent, demonstrations, seed)
            if seed == first_seed:
                row(seed, "base", "bundled", 0.0)
            before_s = children_s()
            sft = summary(
                "sft",
                agent,
                "--sft-data",
                file,
                "--episodes",
                0,
                "--run-dir",
                place / "sft",
                *common,
            )
            cpu = f" ({children_s() - before_s:.0f} s of one core, the program's start included)"
            row(seed, "SFT", str(place / "sft"), sft["elapsed_s"], cpu)
            if not minutes:
                continue
            summary("train", agent, "--minutes", minutes, "--run-dir", place / "rl", *common)
            row(seed, "RL", str(place / "rl"), 60 * minutes)
            first = (
                "--sft-warm-start",
                "--sft-data",
                file,
                "--minutes",
                minutes,
                "--run-dir",
                place / "both",
            )
            summary("train", agent, *first, *common)
            row(seed, "SFT + RL", str(place / "both"), 60 * minutes)
            shares.append(share_of_time(place / "rl", place / "both"))
            print(
                f"seed {seed}: SFT + RL reached RL's last return in {shares[-1]:.2f} of the time",
                flush=True,
            )
    for what, found in returns.items():
        print(f"{what}: median {statistics.median(found):+.4f}, worst {min(found):+.4f}")
    if shares:
        print(
            f"time to RL's end, SFT + RL over RL: median {statistics.median(shares):.2f}, worst {max(shares):.2f}"
        )


def exact_return(model: str) -> float:
    """Of greedy Blackjack with a model, by dynamic programming over its choice in each state as a first turn."""
    torch.set_num_threads(1)
    policy = load_policy(model_folder(model) or Path(model))
    hits = hit_probabilities(policy, AGENT.get_system_prompt())
    return expected_return(lambda state: float(hits[state] > 0.5))


def share_of_time(alone: Path, taught: Path) -> float:
    """Seconds until a run after SFT played as RL alone did at its end, over all seconds of that; infinite: never."""
    if not (moments := list(points(alone))):
        raise SystemExit(f"RL alone played fewer than {RECENT} episodes: it needs more --minutes.")
    end = moments[-1]
    reached_s = next(
        (p.elapsed_s for p in points(taught) if p.recent_mean >= end.recent_mean), float("inf")
    )
    return reached_s / end.elapsed_s


def points(run_dir: Path) -> Iterator[Point]:
    """Moments of a run, from the first with `RECENT` episodes on."""
    began_s, recent = 0.0, deque[float](maxlen=RECENT)
    for event in map(
        json.loads, (run_dir / "events.jsonl").read_text(encoding="utf-8").splitlines()
    ):
        if event["type"] == "RunStarted":
            began_s = event["at_s"]
        elif event["type"] == "EpisodesCounted":
            recent.extend(event["returns"])
            if len(recent) == RECENT:
                yield Point(event["at_s"] - began_s, statistics.fmean(recent))


if __name__ == "__main__":
    typer.run(main)
