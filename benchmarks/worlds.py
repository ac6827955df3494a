"""The table of worlds: what a model learns with the defaults, next to random and best play.

    python -m benchmarks.worlds
    python -m benchmarks.worlds --worlds taxi --worlds tank --seeds 1 --minutes 2
    python -m benchmarks.worlds --worlds kitchen --set ppo.learner=grpo --folder runs/grpo

Runs the command line as a user would, on one core: each run to each mark of minutes, then an evaluation of greedy and
of sampled play, then on to the next mark. Blackjack is evaluated without the luck of its cards (`steady_blackjack`).
Results are added to `results.jsonl` in the folder, next to the runs: the
same command goes on from there. Ends with the table.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean, median
from typing import Annotated, Any, NamedTuple

import typer

from benchmarks.timing import children_s, evaluated, machine, summary, updates_of
from llamagym_tui.setup import catalog

SEED = 1207
"""Of evaluations."""
RECENT = 5
"""Updates over which figures of a run's end are averaged."""
SHORTEST_S = 5.0
"""A run that falls short of a mark by less is at it."""
NONE = "—"
HERE = Path(__file__).parent
Record = dict[str, Any]
"""A line of the results: a run at a mark, or what is known of a world without one."""


class Row(NamedTuple):
    """A world of the table."""

    agent: str
    """As of `train`."""
    episodes: int
    """Episodes of each evaluation."""
    env: Mapping[str, Any] = {}
    """Keyword arguments of the environment."""
    evaluated: str = ""
    """Agent of evaluations, if it is another one."""


ROWS: Mapping[str, Row] = {
    "blackjack": Row("blackjack", 500, evaluated=str(HERE / "steady_blackjack.py")),
    "frozen_lake": Row("frozen_lake", 1000),
    "frozen_lake_8x8": Row("frozen_lake_8x8", 1000),
    "frozen_lake_maps": Row("frozen_lake_maps", 1000),
    "frozen_lake_slippery": Row("frozen_lake_slippery", 2000),
    "cliff_walking": Row("cliff_walking", 200),
    "cart_pole": Row("cart_pole", 100),
    "acrobot": Row("acrobot", 100),
    "taxi": Row("taxi", 300),
    "mountain_car": Row("mountain_car", 100),
    "babyai": Row("BabyAI-GoToRedBallGrey-v0", 500),
    "textworld": Row("textworld", 50),
    "coin_collector": Row("tw-coin_collector", 50, env={"level": 5}),
    "kitchen": Row("kitchen", 1000),
    "sorting": Row("sorting", 1000),
    "tank": Row(str(HERE / "strangers" / "tank.py"), 300),
    "post": Row(str(HERE / "strangers" / "post.py"), 300),
    "stall": Row(str(HERE / "strangers" / "stall.py"), 300),
}
"""By their names, the worlds of strangers last."""


class Records:
    """A file of results, a line of JSON each; a line that a crash has torn is left out."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.all: list[Record] = []
        if path.is_file():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    self.all.append(json.loads(line))
                except ValueError:
                    continue

    def add(self, record: Record) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            # The blank line ends one that was torn.
            file.write(f"\n{json.dumps(record)}\n")
        self.all.append(record)

    def of(self, **wanted: str | float) -> list[Record]:
        return [
            each
            for each in self.all
            if all(each.get(name) == value for name, value in wanted.items())
        ]


class Way(NamedTuple):
    """The settings by which all rows are trained."""

    folder: Path
    model: str = "bundled"
    """As of `train`."""
    settings: Sequence[str] = ()
    """NAME=VALUE of `train --set`."""


def main(
    worlds: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(ROWS)}. (all)")] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each world.")] = 3,
    minutes: Annotated[
        list[float] | None, typer.Option(help="Marks; again for each. (2 and 10)")
    ] = None,
    folder: Annotated[Path, typer.Option(help="Of results and runs.")] = Path("runs/worlds-table"),
    model: Annotated[str, typer.Option(help="As of train.")] = "bundled",
    change: Annotated[
        list[str] | None, typer.Option("--set", help="A setting, as of train.")
    ] = None,
) -> None:
    names = worlds or list(ROWS)
    unknown = sorted(set(names) - set(ROWS))
    if unknown:
        raise typer.BadParameter(f"there is no {', '.join(unknown)}; there are {', '.join(ROWS)}.")
    way = Way(folder.absolute(), model, change or [])
    way.folder.mkdir(parents=True, exist_ok=True)
    records = Records(way.folder / "results.jsonl")
    marks = sorted(minutes or [2, 10])
    for name in names:
        if not records.of(world=name, player="reference"):
            agent = catalog.find_agent(ROWS[name].agent, dict(ROWS[name].env))()
            records.add({"world": name, "player": "reference", **agent.baselines})
    for name, seed in product(names, range(1, seeds + 1)):
        try:
            train_row(records, name, seed, marks, way)
        except subprocess.CalledProcessError as failure:  # the others can still be played
            print(f"{name}, seed {seed}: a command failed with {failure.returncode}.", flush=True)
    print(machine())
    print(table(names, records, marks))


def train_row(records: Records, name: str, seed: int, marks: Sequence[float], way: Way) -> None:
    """Bring a run to each mark that it has not reached yet.

    Raises:
        SystemExit: the folder has results of another model or of other settings.
    """
    row = ROWS[name]
    common = {"model": way.model, "settings": list(way.settings)}
    where = {"world": name, "player": "model", "seed": seed}
    known = records.of(**where)
    for record in known:
        if {key: record[key] for key in common} != common:
            raise SystemExit(f"{way.folder} has results of other settings: name another --folder.")
    run_dir = way.folder / "runs" / f"{name}-{seed}"
    if not known:
        # How far a run without a result has come is not known.
        shutil.rmtree(run_dir, ignore_errors=True)
    last = known[-1] if known else {}
    for mark in marks:
        if mark <= last.get("minutes", 0):
            continue
        trained = train_to(row, seed, run_dir, mark, way, last)
        played = evaluated(row.evaluated or row.agent, run_dir, row.episodes, SEED)
        returns = {who: figures["mean_return"] for who, figures in played.items()}
        batches = learnt([update["stats"] for update in updates_of(run_dir)])
        last = {**where, "minutes": mark, **common, **returns, **trained, **batches}
        records.add(last)
        print(f"{name}, seed {seed}, {mark:g} min: {returns}", flush=True)


def train_to(
    row: Row, seed: int, run_dir: Path, minutes: float, way: Way, last: Record
) -> dict[str, Any]:
    """Train a run until it has played and trained for that many minutes of a processor.

    The clock's minutes would depend on what else runs. Playing and training are counted at the share of a core that
    their whole command had; evaluations and loading are left out.

    Args:
        last: the record of the mark before; empty: none.
    """
    trained_s = last.get("trained_s", 0.0)
    elapsed_s = last.get("elapsed_s", 0.0)
    found: dict[str, Any] = {}
    while True:
        left_s = minutes * 60 - trained_s
        if found and left_s <= SHORTEST_S:
            break
        place = ["--run-dir", run_dir, "--threads", 1]
        if (run_dir / "config.json").is_file():
            place.append("--resume")
        else:
            place += ["--seed", seed, "--model", way.model]
            for name, value in row.env.items():
                place += ["--env", f"{name}={value}"]
            for change in way.settings:
                place += ["--set", change]
        limits = ("--minutes", (elapsed_s + left_s) / 60, "--final-episodes", 0)
        found, share = with_share("train", row.agent, *place, *limits)
        trained_s += share * (found["elapsed_s"] - elapsed_s)
        elapsed_s = found["elapsed_s"]
    return {
        "turns": found["env_steps"],
        "episodes": found["episodes"],
        "updates": found["updates"],
        "elapsed_s": elapsed_s,
        "trained_s": trained_s,
    }


def with_share(*words: object) -> tuple[dict[str, Any], float]:
    """A command's `summary`, and its share of a core."""
    before_s = children_s()
    began_s = time.monotonic()
    found = summary(*words)
    return found, (children_s() - before_s) / (time.monotonic() - began_s)


def learnt(stats: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Mean returns of the first batch and of the last ones; a batch in which no episode ended has none."""
    means = [each["mean_return"] for each in stats if each["mean_return"] is not None]
    return {
        "first_batch": means[0] if means else None,
        "batches": fmean(means[-RECENT:]) if means else None,
    }


def table(names: Sequence[str], records: Records, marks: Sequence[float]) -> str:
    """A row a world and mark, in Markdown: medians of the seeds, and the extremes of greedy play."""
    heads = ["world", "minutes", "random", "first batch", "last batches", "greedy", "sampled"]
    heads += ["best", "turns", "seeds"]
    lines = [heads, ["---"] * len(heads)]
    for name, mark in product(names, marks):
        runs = records.of(world=name, player="model", minutes=mark)
        if not runs:
            continue
        known = records.of(world=name, player="reference")[0]
        greedy = [each["greedy"] for each in runs]
        lines.append(
            [
                name,
                f"{mark:g}",
                number(known.get("random")),
                middle(runs, "first_batch"),
                middle(runs, "batches"),
                f"{number(median(greedy))} ({number(min(greedy))} to {number(max(greedy))})",
                middle(runs, "sampled"),
                number(known.get("optimal", known.get("expert"))),
                f"{median(each['turns'] for each in runs):,.0f}",
                str(len(runs)),
            ]
        )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def middle(runs: Sequence[Record], name: str) -> str:
    """The median of a figure over the runs that have it."""
    values = [each[name] for each in runs if each[name] is not None]
    return number(median(values)) if values else NONE


def number(value: float | None) -> str:
    """As many decimals as a return of its size needs."""
    if value is None:
        return NONE
    if abs(value) < 1:
        return f"{value:.4f}"
    if abs(value) < 10:
        return f"{value:.3f}"
    return f"{value:.1f}"


if __name__ == "__main__":
    typer.run(main)
