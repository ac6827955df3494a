"""This checkout against another one, in turn: speed of training, first frame, and what a fixed run has learned.

    python -m benchmarks.against ../old
    python -m benchmarks.against ../old --rounds 5 --seconds 60 --json

Every measurement is a process of its own with one thread, by the same interpreter; the folder it runs in selects the
code. Ratios are this checkout's figure over the other's within a round: their median, lowest and highest. Learning is
the mean return of all episodes of a run with a fixed seed and a fixed number of episodes: the same code gives the same
number, so a difference is a change in what is learned (or in the order of random draws).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.first_frame import PAINTED, PLAYGROUND, environment, frame_s
from benchmarks.timing import alternate, machine, ratios, spread, summary

HERE = Path(__file__).resolve().parents[1]
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
Env = dict[str, str]


def main(
    other: Annotated[Path, typer.Argument(help="Folder of the other checkout.")],
    rounds: Annotated[int, typer.Option(help="Of each measurement of time.")] = 5,
    seconds: Annotated[float, typer.Option(help="Of training, each round; loading is not counted.")] = 30.0,
    episodes: Annotated[int, typer.Option(help="Of the run whose mean return is compared.")] = 5_000,
    seed: Annotated[int, typer.Option(help="Of every run.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="End with all figures in one line of JSON.")] = False,
) -> None:
    sides = {"this": HERE, "other": other.resolve()}
    print(machine())
    with environment() as env:
        variables = {name: env | ONE_THREAD | {"PYTHONPATH": str(folder)} for name, folder in sides.items()}
        for name, folder in sides.items():
            require_code_of(folder, variables[name])
        speed, frame, learning = (
            {name: partial(measure, folder, variables[name]) for name, folder in sides.items()}
            for measure in (
                lambda folder, env: trained(folder, env, "--minutes", seconds / 60, "--seed", seed)["episodes_per_s"],
                lambda folder, env: frame_s(PLAYGROUND, PAINTED, env, folder),
                lambda folder, env: trained(folder, env, "--episodes", episodes, "--seed", seed)["mean_return"],
            )
        )
        figures = {
            "episodes/s": compared("episodes/s", speed, rounds, ".1f", warm_up=0),
            "first frame, s": compared("first frame, s", frame, rounds, ".3f", warm_up=1),
        }
        returns = {name: run() for name, run in learning.items()}
    difference = returns["this"] - returns["other"]
    print(f"mean return of {episodes} episodes: this {returns['this']:+.4f}, other {returns['other']:+.4f},", end=" ")
    print("equal" if difference == 0 else f"difference {difference:+.4f}")
    if as_json:
        print(json.dumps({**figures, "mean return": returns}))


def require_code_of(folder: Path, env: Env) -> None:
    """End the program unless Python imports the package from a folder."""
    command = [sys.executable, "-c", "import llamagym_tui; print(llamagym_tui.__file__)"]
    found = subprocess.run(command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    if not Path(found).resolve().is_relative_to(folder):
        raise SystemExit(f"{folder} is no checkout: there, llamagym_tui is imported from {found}")


def trained(folder: Path, env: Env, *options: object) -> dict[str, float]:
    """Summary of a run of Blackjack with the defaults."""
    with tempfile.TemporaryDirectory() as run:
        words = ("train", "blackjack", "--threads", 1, "--run-dir", f"{run}/run", *options)
        return summary(*words, cwd=folder, env=env)


def compared(
    title: str, sides: dict[str, Callable[[], float]], rounds: int, form: str, *, warm_up: int
) -> dict[str, list[float]]:
    """Figures of both sides, round by round; printed with their ratio."""
    found = alternate(sides, rounds, warm_up=warm_up)
    seen = ", ".join(f"{name} {spread(values):{form}}" for name, values in found.items())
    print(f"{title}: {seen}; ratio {ratios(found['this'], found['other']):.3f}", flush=True)
    return {**found, "ratio": list(ratios(found["this"], found["other"]))}


if __name__ == "__main__":
    typer.run(main)
