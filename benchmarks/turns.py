"""Turns that are played and learnt from in a processor second, rollout and update together, with one thread.

    python -m benchmarks.turns cart_pole full_finetuning=true history=all --updates 3
    python -m benchmarks.turns blackjack --other ../old --rounds 3
    python -m benchmarks.turns blackjack --model smollm2 --warm-up 0 --updates 1 --other ../old

With `--other`, the code of this checkout and of another one run in turn, each in a process of its own; the last lines
are ratios, formed within each round. This file runs by the older code too, so it imports only what older versions have.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from statistics import median
from typing import Annotated

import typer

from benchmarks.bare_run import BareRun, settings
from benchmarks.timing import alternate, machine, ratios, spread

HERE = Path(__file__).resolve().parents[1]
BUNDLED = HERE / "llamagym_tui" / "bundled_model"
"""The model of both sides of `--other`."""
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


def main(
    agent: Annotated[str, typer.Argument(help="As of `train`.")],
    changes: Annotated[
        list[str] | None, typer.Argument(help="NAME=VALUE, as `train --set` takes them.")
    ] = None,
    updates: Annotated[int, typer.Option(help="That count.")] = 2,
    warm_up: Annotated[int, typer.Option(help="Updates before them.")] = 1,
    model: Annotated[str, typer.Option(help="As of `train`.")] = "bundled",
    other: Annotated[Path | None, typer.Option(help="Folder of another checkout.")] = None,
    rounds: Annotated[int, typer.Option(help="Of both checkouts.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="All figures in one line.")] = False,
) -> None:
    if other is not None:
        if model == "bundled":
            model = str(BUNDLED)
        words = [agent, *(changes or []), "--updates", updates, "--warm-up", warm_up]
        compare([*words, "--model", model, "--json"], other.resolve(), rounds)
        return
    config = settings(agent, ["seed=11", *(changes or [])], model=model)
    run = BareRun(config, threads=1)
    made = [one_update(run) for _ in range(warm_up + updates)][warm_up:]
    figures = {name: median(each[name] for each in made) for name in made[0]}
    if as_json:
        print(json.dumps(figures))
    else:
        print("\n".join(f"{name} {figure:.3f}" for name, figure in figures.items()))


def compare(words: list[object], other: Path, rounds: int) -> None:
    """Run this file by the code of both checkouts and print their figures and ratios."""
    print(machine(), flush=True)
    sides = {"this": HERE, "other": other}
    variants = {name: lambda code=code: figures_of(code, words) for name, code in sides.items()}
    found = alternate(variants, rounds, warm_up=0)
    for name in found["this"][0]:
        this, that = ([each[name] for each in found[side]] for side in sides)
        print(
            f"{name}: this {spread(this):.3f}, other {spread(that):.3f}, ratio {ratios(this, that):.2f}"
        )


def figures_of(checkout: Path, words: list[object]) -> dict[str, float]:
    """The figures of this file when it runs by the code of a checkout.

    Raises:
        SystemExit: the folder is no checkout.
    """
    variables = os.environ | ONE_THREAD | {"PYTHONPATH": str(checkout)}
    where = [sys.executable, "-c", "import llamagym_tui; print(llamagym_tui.__file__)"]
    imported = subprocess.run(
        where, cwd=checkout, env=variables, stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()
    if not Path(imported).resolve().is_relative_to(checkout):
        raise SystemExit(f"{checkout} is no checkout: llamagym_tui is imported from {imported}")
    command = [sys.executable, __file__, *map(str, words)]
    printed = subprocess.run(
        command, cwd=checkout, env=variables, stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    return json.loads(printed.splitlines()[-1])


def one_update(run: BareRun) -> dict[str, float]:
    """Processor milliseconds of a turn by part, the peak of the process so far, and turns a second."""
    began = time.process_time()
    run.play()
    played = time.process_time()
    turns = run.learner.update(run.rollout.take_batch()).turns
    ended = time.process_time()
    return {
        "rollout, ms a turn": 1e3 * (played - began) / turns,
        "update, ms a turn": 1e3 * (ended - played) / turns,
        "peak MiB": getrusage(RUSAGE_SELF).ru_maxrss / 1024,
        "turns a second": turns / (ended - began),
    }


if __name__ == "__main__":
    typer.run(main)
