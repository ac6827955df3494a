"""The table of estimators: what each learner makes of a world in the same minutes of a processor, on the same seeds.

    python -m benchmarks.estimators
    python -m benchmarks.estimators --worlds blackjack --learners ppo --learners grpo --seeds 1 --minutes 2

Trains with the defaults but for the learner, one run after the other. The policy at the end is evaluated by sampled
play on seeds that no training saw; Blackjack without the luck of its cards (`steady_blackjack`). Results are added to
`results.jsonl` in the folder, next to the runs: the same command goes on from there. Ends with the table.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import fmean, median
from typing import Annotated

import typer

from benchmarks.peers import EVALUATED
from benchmarks.timing import machine, summary, updates_of
from benchmarks.world_rows import ROWS
from benchmarks.worlds import RECENT, SEED, Record, Records, Way, middle, number, train_to
from llamagym_tui.settings import LEARNERS

WORLDS = ("blackjack", "frozen_lake", "kitchen", "cliff_walking")
EPISODES = 500
"""Of each evaluation."""


def main(
    worlds: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(ROWS)}.")] = None,
    learners: Annotated[list[str] | None, typer.Option(help="As of train. (all)")] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each.")] = 3,
    minutes: Annotated[float, typer.Option(help="Of a processor, each run.")] = 2.0,
    model: Annotated[str, typer.Option(help="As of train.")] = "bundled",
    folder: Annotated[Path, typer.Option(help="Of results and runs.")] = Path("runs/estimators"),
) -> None:
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    records = Records(folder / "results.jsonl")
    common = {"model": model, "minutes": minutes}
    for record in records.all:
        if {name: record[name] for name in common} != common:
            raise typer.BadParameter(f"{folder} has results of other settings: name another one.")
    cells = product(range(1, seeds + 1), worlds or WORLDS, learners or list(LEARNERS))
    for seed, world, learner in cells:
        where = {"world": world, "learner": learner, "seed": seed}
        if records.of(**where):
            continue
        try:
            found = trained(folder / f"{world}-{learner}-{seed}", model, minutes, where)
        except subprocess.CalledProcessError as failure:  # the others can still be trained
            print(f"{where}: {failure}", flush=True)
            continue
        records.add({**common, **where, **found})
        print(f"{where}: {found['sampled']:+.4f}", flush=True)
    print(machine())
    print(table(records.all))


def trained(run_dir: Path, model: str, minutes: float, where: Record) -> Record:
    """Train one run and evaluate it."""
    row = ROWS[where["world"]]
    way = Way(run_dir.parent, model, [f"ppo.learner={where['learner']}"])
    found = train_to(row, where["seed"], run_dir, minutes, way, {})
    words = ("--model", run_dir, "--episodes", EPISODES, "--seed", SEED, "--threads", 1)
    agent = EVALUATED.get(where["world"], row.agent)
    played = summary("eval", agent, *words, "--sampled")
    stats = [update["stats"] for update in updates_of(run_dir)]
    entropy = fmean(each["action_entropy"] for each in stats[-RECENT:])
    first = stats[0]["mean_return"]
    return found | {
        "sampled": played["mean_return"],
        "first_batch": first,
        "action_entropy": entropy,
    }


def table(records: Sequence[Record]) -> str:
    """A row a world and learner: medians of its seeds, with the extremes of its returns."""
    heads = ["world", "learner", "first batch", "sampled", "turns", "updates", "entropy", "seeds"]
    lines = [heads, ["---"] * len(heads)]
    for world, learner in dict.fromkeys((each["world"], each["learner"]) for each in records):
        runs = [each for each in records if (each["world"], each["learner"]) == (world, learner)]
        returns = [each["sampled"] for each in runs]
        sampled = f"{number(median(returns))} ({number(min(returns))} to {number(max(returns))})"
        lines.append(
            [
                world,
                f"`{learner}`",
                middle(runs, "first_batch"),
                sampled,
                f"{median(each['turns'] for each in runs):,.0f}",
                f"{median(each['updates'] for each in runs):,.0f}",
                middle(runs, "action_entropy"),
                str(len(runs)),
            ]
        )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    typer.run(main)
