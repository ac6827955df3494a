"""The table of worlds: what the bundled model learns with the defaults, next to random, best and an MLP's play.

    python -m benchmarks.worlds
    python -m benchmarks.worlds --worlds taxi --worlds abbey --seeds 1 --minutes 2 --no-mlp

Runs the command line as a user would, on one core: each run to each mark of minutes, greedy and sampled evaluation on
seeds of the table's own, then on to the next mark. What is found is added to `results.jsonl` in the folder, next to the
runs: the same command goes on from there, and two commands with different worlds share it. Ends with the table.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, NamedTuple

import typer

from benchmarks import own_environment
from benchmarks.learning import evaluated, expert_file, updates_of
from benchmarks.timing import children_s, summary
from benchmarks.world_baselines import by_playing
from benchmarks.world_rows import ROWS, Row
from benchmarks.world_table import Record, first_to_reach, mark_of, table
from llamagym_tui.game.environment import agent_env
from llamagym_tui.setup import catalog

SEED = 1207
"""Of evaluations; `learning`, by which settings were chosen, has another one."""
RECENT = 5
"""Updates whose batches have the mean return of training."""
SHORTEST_S = 5.0
"""Of a command that goes on with a run: one that falls short by less is at its mark."""
REFERENCE_EPISODES = 200
"""Of random play and the expert, where an agent states no returns."""


class Records:
    """A file of what was found, a line of JSON each; a line that a crash has torn is left out."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.all: list[Record] = []
        if path.is_file():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    self.all.append(json.loads(line))
                except ValueError:
                    continue

    def add(self, record: Record) -> Record:
        with self._path.open("a+b") as file:
            file.seek(max(file.tell() - 1, 0))
            torn = file.read() not in (b"", b"\n")
            if torn:
                file.write(b"\n")
            file.write(json.dumps(record).encode() + b"\n")
        self.all.append(record)
        return record

    def of(self, **wanted: str | float) -> list[Record]:
        return [
            each
            for each in self.all
            if all(each.get(name) == value for name, value in wanted.items())
        ]


class Way(NamedTuple):
    """How all rows are trained."""

    folder: Path
    minutes: Sequence[float]
    """Marks, the smallest first."""
    threads: int
    model: str
    settings: Sequence[str]
    """NAME=VALUE of `train --set`."""
    episodes: int | None
    """Of each evaluation. None: those of the row."""

    def episodes_of(self, row: Row) -> int:
        return self.episodes or row.episodes

    @property
    def common(self) -> dict[str, Any]:
        """What all results of a table have in common, as they are recorded."""
        here = {"model": self.model, "settings": list(self.settings), "threads": self.threads}
        return here | {"trial_episodes": self.episodes}


def main(
    worlds: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(ROWS)}. (all)")] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each world.")] = 3,
    first_seed: Annotated[int, typer.Option(help="Seed of the first run.")] = 1,
    minutes: Annotated[
        list[float] | None, typer.Option(help="Marks; again for each. (2, 5 and 10)")
    ] = None,
    threads: Annotated[int, typer.Option(help="Of torch.")] = 1,
    folder: Annotated[Path, typer.Option(help="Of results and runs.")] = Path("runs/worlds-table"),
    model: Annotated[str, typer.Option(help="As of train.")] = "bundled",
    change: Annotated[
        list[str] | None, typer.Option("--set", help="A setting, as of train.")
    ] = None,
    episodes: Annotated[
        int | None, typer.Option(help="Of each evaluation, for a trial. (the row's)")
    ] = None,
    ours: Annotated[bool, typer.Option(help="Train the model.")] = True,
    mlp: Annotated[bool, typer.Option(help="Train the MLP, too.")] = True,
    environment: Annotated[
        Path | None, typer.Option(help="Folder of the MLP's environment. (user's cache)")
    ] = None,
    only_table: Annotated[
        bool, typer.Option("--only-table", help="Print what there is, and end.")
    ] = False,
) -> None:
    names = worlds or list(ROWS)
    if unknown := set(names) - set(ROWS):
        raise typer.BadParameter(
            f"there is no {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}."
        )
    way = Way(
        folder.absolute(), sorted(minutes or [2, 5, 10]), threads, model, change or [], episodes
    )
    folder.mkdir(parents=True, exist_ok=True)
    records = Records(folder / "results.jsonl")
    all_seeds = range(first_seed, first_seed + seeds)
    if not only_table:
        require_same_way(records, way)
        python = (
            mlp_interpreter(environment)
            if mlp and any(ROWS[name].has_mlp for name in names)
            else None
        )
        for name in names:
            references(records, name)
        for name, seed in product(names, all_seeds):
            try:
                if ours:
                    train_model(records, name, seed, way)
                if python is not None and ROWS[name].has_mlp:
                    train_mlp(records, name, seed, way, python)
            except subprocess.CalledProcessError as failure:  # the others can still be played
                print(
                    f"{name}, seed {seed}: a command failed with {failure.returncode}; its error is above.",
                    flush=True,
                )
    print(table({name: ROWS[name] for name in names}, records.all, way.minutes, len(all_seeds)))


def require_same_way(records: Records, way: Way) -> None:
    """Refuse to mix results of two models or settings, or of a trial, in one table."""
    for record in records.of(player="model"):
        if {name: record.get(name) for name in way.common} != way.common:
            raise SystemExit(
                f"{way.folder} has results of another model, other settings or other episodes: name another --folder."
            )


def references(records: Records, name: str) -> None:
    """Random and best play, as the agent states them or else measured."""
    if records.of(world=name, player="reference"):
        return
    row = ROWS[name]
    agent = catalog.find_agent(row.agent, dict(row.env))()
    found = dict(agent.baselines)
    if not found:
        env = agent_env(agent)
        with redirect_stdout(sys.stderr):  # environments print, too
            found = {
                who: mean for who, (mean, _) in by_playing(agent, env, REFERENCE_EPISODES).items()
            }
        env.close()
    records.add({"world": name, "player": "reference", **found})


def train_model(records: Records, name: str, seed: int, way: Way) -> None:
    """Bring a run to each mark that it has not reached yet, then on to its number of turns."""
    row = ROWS[name]
    run_dir = way.folder / "runs" / f"{name}-{seed}"
    known = records.of(world=name, player="model", seed=seed)

    def note(minutes: float, training: Record) -> None:
        played = evaluated(row.agent, run_dir, way.episodes_of(row), str(way.threads), SEED)
        record = {"world": name, "player": "model", "seed": seed, "minutes": minutes}
        record |= way.common
        record |= {who: figures(each) for who, each in played.items()}
        known.append(records.add(record | training))
        print(
            f"{name}, seed {seed}, {minutes:g} min: greedy {played['greedy']['mean_return']:+.4f}",
            flush=True,
        )

    if not known:
        shutil.rmtree(
            run_dir, ignore_errors=True
        )  # of a run that has no result, nobody knows how far it is
        if row.demonstrations:
            warm_start(row, seed, run_dir, way)
            note(0, {})
    for mark in marks_left(known, row, way.minutes):
        trained = train_to(row, seed, run_dir, mark, way, known[-1] if known else {})
        note(mark, trained | learnt(updates_of(run_dir), row.wanted))


def marks_left(known: Sequence[Record], row: Row, marks: Sequence[float]) -> Iterator[float]:
    """Minutes to train to next; `known` grows meanwhile.

    Raises:
        SystemExit: the run is beyond a mark already.
    """
    for mark in marks:
        if mark_of(known, mark) is not None:
            continue
        if known and known[-1]["minutes"] > mark:
            raise SystemExit(
                f"A run is at {known[-1]['minutes']:g} minutes, beyond {mark:g}: name another --folder."
            )
        yield mark
    while known[-1]["turns"] < row.turns and first_to_reach(row, known) is None:
        yield known[-1]["minutes"] + marks[0]


def warm_start(row: Row, seed: int, run_dir: Path, way: Way) -> None:
    """Begin a run on expert episodes of its own."""
    file = way.folder / "demonstrations" / f"{run_dir.name}.jsonl"
    file.parent.mkdir(exist_ok=True)
    expert_file(file, row.agent, row.demonstrations, seed, env_words(row))
    summary(
        "sft", row.agent, "--sft-data", file, "--episodes", 0, *beginning(row, seed, run_dir, way)
    )


def train_to(
    row: Row, seed: int, run_dir: Path, minutes: float, way: Way, last: Record
) -> dict[str, Any]:
    """Train a run until it has played and trained for so many minutes of a processor, evaluations and loading excluded.

    Not the clock's minutes: what is learnt in one must not depend on what else runs. Playing and training are counted
    at the share of a core that their whole command had.

    Args:
        last: the record of the mark before; empty: none.
    """
    trained_s, elapsed_s = last.get("trained_s", 0.0), last.get("elapsed_s", 0.0)
    found: dict[str, Any] = {}
    while (left_s := minutes * 60 - trained_s) > SHORTEST_S or not found:
        begun = (run_dir / "config.json").is_file()
        resumed = ("--resume", "--run-dir", run_dir, "--threads", way.threads)
        place = resumed if begun else beginning(row, seed, run_dir, way)
        limits = ("--minutes", (elapsed_s + left_s) / 60, "--final-episodes", 0)
        found, share = with_share("train", row.agent, *place, *limits)
        trained_s += share * (found["elapsed_s"] - elapsed_s)
        elapsed_s = found["elapsed_s"]
    kept = {name: found[name] for name in ("episodes", "updates", "elapsed_s")}
    return {"turns": found["env_steps"], **kept, "trained_s": trained_s}


def with_share(*words: object) -> tuple[dict[str, Any], float]:
    """A command's `summary`, and what share of a core it had."""
    before_s, began_s = children_s(), time.monotonic()
    found = summary(*words)
    return found, (children_s() - before_s) / (time.monotonic() - began_s)


def beginning(row: Row, seed: int, run_dir: Path, way: Way) -> Sequence[object]:
    """Options of a new run."""
    changes = [word for change in way.settings for word in ("--set", change)]
    place = ("--run-dir", run_dir, "--seed", seed, "--model", way.model, "--threads", way.threads)
    return [*place, *env_words(row), *changes]


def env_words(row: Row) -> list[str]:
    return [word for name, value in row.env.items() for word in ("--env", f"{name}={value}")]


def learnt(updates: Sequence[dict[str, Any]], wanted: float) -> dict[str, Any]:
    """What a run's updates show: the sampled play of its batches, and when one of them first had what is wanted.

    A batch in which no episode ended has no mean return.
    """
    stats = [update["stats"] for update in updates]
    means = [each["mean_return"] for each in stats if each["mean_return"] is not None]
    variances = [
        each["explained_variance"] for each in stats if each["explained_variance"] is not None
    ]
    turns = 0
    seconds = 0.0
    reached = None
    for each in stats:
        turns += each["turns"]
        seconds += each["rollout_s"] + each["update_s"]
        if reached is None and each["mean_return"] is not None and each["mean_return"] >= wanted:
            reached = {"turns": turns, "minutes": seconds / 60}
    return {
        "first_batch": means[0] if means else None,
        "batches": fmean(means[-RECENT:]) if means else None,
        "explained_variance": fmean(variances[-RECENT:]) if variances else None,
        "reached": reached,
    }


def figures(played: dict[str, Any]) -> dict[str, Any]:
    return {
        name: played[name]
        for name in ("mean_return", "return_stderr", "parse_failure_rate", "episodes")
    }


def mlp_interpreter(folder: Path | None) -> Path:
    place = (folder or own_environment.default_folder("worlds-mlp")).expanduser().absolute()
    return own_environment.interpreter(
        place, sys.executable, Path(__file__).with_name("worlds_requirements.txt")
    )


def train_mlp(records: Records, name: str, seed: int, way: Way, python: Path) -> None:
    """All marks of one run of the MLP; one that was cut off begins again."""
    row = ROWS[name]
    done = records.of(world=name, player="mlp", seed=seed)
    left = [mark for mark in way.minutes if mark_of(done, mark) is None]
    if not left:
        return
    given = {"agent": row.agent, "env": dict(row.env), "seed": seed, "minutes": left}
    given |= {"episodes": way.episodes_of(row), "threads": way.threads}
    here = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[1]),
        "OMP_NUM_THREADS": str(way.threads),
    }
    words = [str(python), str(Path(__file__).with_name("worlds_mlp.py")), json.dumps(given)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=here) as process:
        assert process.stdout is not None
        for line in process.stdout:
            found = records.add({"world": name, "player": "mlp", "seed": seed, **json.loads(line)})
            print(
                f"{name}, MLP, seed {seed}, {found['minutes']:g} min: {found['greedy']['mean_return']:+.4f}",
                flush=True,
            )
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, words)


if __name__ == "__main__":
    typer.run(main)
