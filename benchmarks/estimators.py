"""The table of estimators: what each learner makes of a world in the same minutes of a processor, on the same seeds.

    python -m benchmarks.estimators
    python -m benchmarks.estimators --worlds blackjack --learners ppo --learners grpo --seeds 1 --minutes 2

Trains with the defaults but for the learner, one run after the other, as `compare` does with two learners: by this
process's own minutes, so that what else the machine does changes nothing. The policy at its end is evaluated by sampled
play, on seeds that no training saw; Blackjack without the luck of its cards (`steady_blackjack`). What is found is
added to `results.jsonl` in the folder, next to the runs: the same command goes on from there, with all worlds and
learners of a seed before the next seed. Ends with the table, and with how well the runs' figures go with their returns:
by ranks (Spearman) within each world, so that no world counts for its unit, and in the course of each run.
"""

from __future__ import annotations

import queue
import shutil
import subprocess
import time
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean, median
from typing import Annotated, Any

import typer

from benchmarks.learning import updates_of
from benchmarks.peers import EVALUATED
from benchmarks.timing import machine, summary
from benchmarks.world_rows import ROWS
from benchmarks.world_table import NONE, Record, number
from benchmarks.worlds import RECENT, SEED, Records
from llamagym_tui.cli.headless import Summary, play_session
from llamagym_tui.config import LEARNERS
from llamagym_tui.errors import LlamaGymError, UsageError
from llamagym_tui.setup.run_config import run_config

WORLDS = ("blackjack", "frozen_lake", "kitchen", "cliff_walking")
EPISODES = 500
"""Of each evaluation, where a record does not say how many."""
FIGURES = ("action_information", "action_entropy")
"""What may go with returns."""


def main(
    worlds: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(ROWS)}.")] = None,
    learners: Annotated[list[str] | None, typer.Option(help="As of train. (all)")] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each.")] = 3,
    minutes: Annotated[float, typer.Option(help="Of a processor, each run.")] = 2.0,
    model: Annotated[str, typer.Option(help="As of train.")] = "bundled",
    change: Annotated[
        list[str] | None, typer.Option("--set", help="A setting, as of train.")
    ] = None,
    episodes: Annotated[int, typer.Option(help="Of each evaluation.")] = EPISODES,
    folder: Annotated[Path, typer.Option(help="Of results and runs.")] = Path("runs/estimators"),
    only_table: Annotated[
        bool, typer.Option("--only-table", help="Print what there is, and end.")
    ] = False,
) -> None:
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    records = Records(folder / "results.jsonl")
    settings = change or []
    common = {"model": model, "minutes": minutes, "settings": settings, "episodes": episodes}
    for record in records.all:
        if {name: record.get(name, EPISODES) for name in common} != common:
            raise typer.BadParameter(
                f"{folder} has results of another model, or of other settings, minutes or episodes: name another "
                "--folder."
            )
    if not only_table:
        cells = product(range(1, seeds + 1), worlds or WORLDS, learners or list(LEARNERS))
        for seed, world, learner in cells:
            where = {"world": world, "learner": learner, "seed": seed}
            if records.of(**where):
                continue
            try:
                found = trained(folder / run_name(where), common, where)
            except (LlamaGymError, subprocess.CalledProcessError) as failure:
                print(f"{where}: {failure}", flush=True)  # the others can still be trained
                continue
            records.add({**common, **where, **found})
            print(f"{where}: {found['sampled']:+.4f}", flush=True)
    print(machine())
    print(table(records.all))
    print(agreement(records.all))
    print(course(folder, records.all))


def trained(run_dir: Path, common: Record, where: Record) -> Record:
    """Train one run and evaluate it; what a run that was cut off has left is removed."""
    shutil.rmtree(run_dir, ignore_errors=True)
    world, minutes = where["world"], common["minutes"]
    config = run_config(
        agent=ROWS[world].agent,
        env=dict(ROWS[world].env) or None,
        run_dir=run_dir,
        resume=False,
        learner=where["learner"],
        model=common["model"],
        seed=where["seed"],
        threads=1,
        minutes=minutes,
        final_episodes=0,
        assignments=common["settings"],
    )
    report = Summary()
    ended = play_session(
        config, report, queue.SimpleQueue(), debug=False, minutes=minutes, clock=time.process_time
    )
    if ended.error is not None:
        raise ended.error
    if ended.session.active_run is None or not ended.session.active_run.limit_reached:
        raise KeyboardInterrupt  # which the session has taken as its stop
    made = report.figures()
    if not made["updates"]:
        raise UsageError(f"No update was made in {minutes:g} minutes; give it more --minutes.")
    found = {"turns": made["env_steps"], "updates": made["updates"], "trained_s": made["elapsed_s"]}
    words = ("--model", run_dir, "--episodes", common["episodes"], "--seed", SEED, "--threads", 1)
    played = summary("eval", EVALUATED.get(world, ROWS[world].agent), *words, "--sampled")
    returns = {"sampled": played["mean_return"], "stderr": played["return_stderr"]}
    return found | returns | last_figures(update["stats"] for update in updates_of(run_dir))


def last_figures(stats: Iterable[dict[str, Any]]) -> Record:
    """The first batch's return, and what the last updates show on average."""
    every = list(stats)
    last = every[-RECENT:]
    found = {name: fmean(each[name] for each in last) for name in (*FIGURES, "idle_share")}
    return {"first_batch": every[0]["mean_return"], **found}


def table(records: Sequence[Record]) -> str:
    """A row a world and learner: medians of its seeds, with the extremes of its returns."""
    heads = [
        "world", "learner", "first batch", "sampled", "seconds", "turns", "updates", "information",
        "action entropy", "teaches nothing", "seeds",
    ]  # fmt: skip
    lines = [heads, ["---"] * len(heads)]
    for world, learner in dict.fromkeys((each["world"], each["learner"]) for each in records):
        runs = [each for each in records if (each["world"], each["learner"]) == (world, learner)]
        middle = {name: median(each[name] for each in runs) for name in COLUMNS}
        returns = [each["sampled"] for each in runs]
        sampled = number(middle["sampled"])
        if len(runs) > 1:
            sampled += f" ({number(min(returns))} to {number(max(returns))})"
        compares = LEARNERS[learner].groups is not None
        lines.append([
            world, f"`{learner}`", number(middle["first_batch"]), sampled,
            f"{middle['trained_s']:.0f}", f"{middle['turns']:,.0f}", f"{middle['updates']:,.0f}",
            f"{middle['action_information']:.3f}", f"{middle['action_entropy']:.3f}",
            f"{middle['idle_share']:.2f}" if compares else NONE, str(len(runs)),
        ])  # fmt: skip
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


COLUMNS = ("first_batch", "sampled", "trained_s", "turns", "updates", *FIGURES, "idle_share")


def agreement(records: Sequence[Record]) -> str:
    """A sentence a figure: how well it goes with the returns of the runs, over all worlds and in each of them."""
    worlds = list(dict.fromkeys(each["world"] for each in records))
    lines = []
    for name in FIGURES:
        ranks = {
            world: ranked([each for each in records if each["world"] == world], name)
            for world in worlds
        }
        own = ", ".join(f"{world} {text(correlation(pairs))}" for world, pairs in ranks.items())
        every = [pair for pairs in ranks.values() for pair in pairs]
        lines.append(f"{name} and return, {len(every)} runs: {text(correlation(every))} ({own})")
    return "\n".join(lines)


def course(folder: Path, records: Sequence[Record]) -> str:
    """A sentence a figure: how well it goes with the returns of batches in the course of a run, median of the runs."""
    # Of a batch in which no episode ended no return is known.
    runs = [
        [
            update["stats"]
            for update in updates_of(folder / run_name(record))
            if update["stats"]["mean_return"] is not None
        ]
        for record in records
    ]
    lines = []
    for name in FIGURES:
        found = [rank_correlation(stats, name, "mean_return") for stats in runs]
        known = sorted(each for each in found if each is not None)
        lines.append(
            f"{name} and return over a run's updates, {len(known)} runs: median {text(median(known))} "
            f"({text(known[0])} to {text(known[-1])})"
        )
    return "\n".join(lines)


def rank_correlation(records: Sequence[Record], name: str, other: str) -> float | None:
    """Spearman's, of two figures. None: one of both does not vary."""
    figures, others = (from_middle([each[key] for each in records]) for key in (name, other))
    return correlation(list(zip(figures, others, strict=True)))


def run_name(where: Record) -> str:
    """Of a run's folder."""
    return f"{where['world']}-{where['learner']}-{where['seed']}"


def ranked(records: Sequence[Record], name: str) -> list[tuple[float, float]]:
    """Of each run of a world, how far its figure and its return are from the middle of their ranks, in ranks."""
    figures = from_middle([each[name] for each in records])
    returns = from_middle([each["sampled"] for each in records])
    return list(zip(figures, returns, strict=True))


def from_middle(values: Sequence[float]) -> list[float]:
    """Of each value, half the difference of how many are below and above it: its rank, less the mean rank."""
    return [
        (sum(other < value for other in values) - sum(other > value for other in values)) / 2
        for value in values
    ]


def correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Of pairs whose means are 0. None: one of both does not vary."""
    together = sum(one * other for one, other in pairs)
    squares = sum(one**2 for one, _ in pairs) * sum(other**2 for _, other in pairs)
    return together / squares**0.5 if squares else None


def text(value: float | None) -> str:
    return NONE if value is None else f"{value:+.2f}"


if __name__ == "__main__":
    typer.run(main)
