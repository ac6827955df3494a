"""This checkout against another one, in turn: speed of training, first frame, and what a fixed run has learned.

    python -m benchmarks.against ../old
    python -m benchmarks.against ../old --rounds 5 --seconds 60 --json

Every measurement is a process of its own with one thread, by the same interpreter; the folder it runs in selects the
code. Ratios are this checkout's figure over the other's within a round: their median, lowest and highest. Learning is
the mean return of all episodes of a run with a fixed seed and a fixed number of episodes: the same code gives the same
number, so a difference is a change in what is learned (or in the order of random draws). On a busy machine the ratio of
processor seconds is steadier; it means something for the first frame and for that run, whose work is fixed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from benchmarks.first_frame import PAINTED, PLAYGROUND, environment, frame_s
from benchmarks.timing import alternate, children_s, machine, ratios, spread, summary

HERE = Path(__file__).resolve().parents[1]
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
Env = dict[str, str]


def main(
    other: Annotated[Path, typer.Argument(help="Folder of the other checkout.")],
    rounds: Annotated[int, typer.Option(help="Of each measurement of time.")] = 5,
    seconds: Annotated[
        float, typer.Option(help="Of training, each round; loading is not counted.")
    ] = 30.0,
    episodes: Annotated[
        int, typer.Option(help="Of the run whose mean return is compared.")
    ] = 5_000,
    seed: Annotated[int, typer.Option(help="Of every run.")] = 1,
    as_json: Annotated[
        bool, typer.Option("--json", help="End with all figures in one line of JSON.")
    ] = False,
) -> None:
    sides = {"this": HERE, "other": other.resolve()}
    print(machine())
    with environment() as env:
        variables = {
            name: env | ONE_THREAD | {"PYTHONPATH": str(folder)} for name, folder in sides.items()
        }
        for name, folder in sides.items():
            require_code_of(folder, variables[name])
        speed, frame, learning = (
            {name: partial(measure, folder, variables[name]) for name, folder in sides.items()}
            for measure in (
                lambda folder, env: trained(folder, env, "--minutes", seconds / 60, "--seed", seed)[
                    "episodes_per_s"
                ],
                lambda folder, env: frame_s(PLAYGROUND, PAINTED, env, folder),
                lambda folder, env: played(
                    trained(folder, env, "--episodes", episodes, "--seed", seed)
                ),
            )
        )
        found = {
            "episodes/s": compared("episodes/s", speed, rounds, ".1f"),
            "first frame, s": compared("first frame, s", frame, rounds, ".3f", warm_up=1),
            "mean return": compared(f"mean return of {episodes} episodes", learning, 1, "+.4f"),
        }
    this, that = (found["mean return"][name][0].figure for name in sides)
    print("learning is equal" if this == that else f"learning differs by {this - that:+.4f}")
    if as_json:
        print(json.dumps(found))


def require_code_of(folder: Path, env: Env) -> None:
    """End the program unless Python imports the package from a folder."""
    command = [sys.executable, "-c", "import llamagym_tui; print(llamagym_tui.__file__)"]
    found = subprocess.run(
        command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()
    if not Path(found).resolve().is_relative_to(folder):
        raise SystemExit(f"{folder} is no checkout: there, llamagym_tui is imported from {found}")


def printed_by_code_of(folder: Path, env: Env, script: Path, *options: object) -> str:
    """What a script of this checkout prints, run on one thread by the code of a folder."""
    variables = env | ONE_THREAD | {"PYTHONPATH": str(folder)}
    require_code_of(folder, variables)
    command = [sys.executable, str(script), *map(str, options)]
    return subprocess.run(
        command, cwd=folder, env=variables, stdout=subprocess.PIPE, text=True, check=True
    ).stdout


def played(figures: dict[str, Any]) -> float:
    """Mean return of a run: of its final evaluation, or as versions before that one had it."""
    found: float = (figures.get("evaluation") or figures)["mean_return"]
    return found


def trained(folder: Path, env: Env, *options: object) -> dict[str, Any]:
    """Summary of a run of Blackjack with the defaults."""
    with tempfile.TemporaryDirectory() as run:
        words = ("train", "blackjack", "--threads", 1, "--run-dir", f"{run}/run", *options)
        return summary(*words, cwd=folder, env=env)


class Measured(NamedTuple):
    figure: float
    processor_s: float
    """Of the process that gave the figure."""


def measured(run: Callable[[], float]) -> Measured:
    before_s = children_s()
    figure = run()
    return Measured(figure, children_s() - before_s)


def compared(
    title: str, sides: dict[str, Callable[[], float]], rounds: int, form: str, *, warm_up: int = 0
) -> dict[str, list[Measured]]:
    """Measurements of both sides, round by round; printed with their ratio."""
    found = alternate(
        {name: partial(measured, run) for name, run in sides.items()}, rounds, warm_up=warm_up
    )
    figures = {name: [one.figure for one in made] for name, made in found.items()}
    seconds = {name: [one.processor_s for one in made] for name, made in found.items()}
    print(
        f"{title}: "
        + ", ".join(f"{name} {spread(values):{form}}" for name, values in figures.items())
    )
    print(f"  ratio {ratios(figures['this'], figures['other']):.3f},", end=" ")
    print(f"of processor seconds {ratios(seconds['this'], seconds['other']):.3f}", flush=True)
    return found


if __name__ == "__main__":
    typer.run(main)
