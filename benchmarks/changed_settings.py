"""What changed settings cost and bring: a run with the defaults and one with the changes, in turn, update by update.

    python -m benchmarks.changed_settings --agent frozen_lake --updates 16 --seeds 1 ppo.epochs=4
    python -m benchmarks.changed_settings --both n_envs=128 --both ppo.batch_size=512 precision=bf16

Times are processor seconds of one thread per turn of an episode, so that other work on the machine weighs less. A
batch's mean return is that of sampled play: on Frozen Lake the share of episodes that reach the goal.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Annotated, NamedTuple

import typer

from benchmarks.bare_run import BareRun, settings
from benchmarks.decoding import SHAPES, build_model
from benchmarks.timing import alternate, machine, ratios
from llamagym_tui.config import UpdateStats


class Update(NamedTuple):
    rollout_s: float
    """Processor seconds a turn."""
    update_s: float
    stats: UpdateStats


def main(
    changes: Annotated[
        list[str], typer.Argument(help="Settings of the second run, as ppo.epochs=4.")
    ],
    agent: Annotated[str, typer.Option(help="As of train.")] = "blackjack",
    model: Annotated[
        str, typer.Option(help=f"As of train; or random weights: {', '.join(SHAPES)}.")
    ] = "bundled",
    both: Annotated[list[str] | None, typer.Option(help="A setting of both runs.")] = None,
    updates: Annotated[
        int, typer.Option(help="Of each run; the time of the first does not count.")
    ] = 5,
    seeds: Annotated[int, typer.Option(help="Pairs of runs.")] = 1,
    first_seed: Annotated[int, typer.Option(help="Seed of the first pair.")] = 11,
) -> None:
    print(machine())
    folder = tempfile.TemporaryDirectory()
    if model in SHAPES:
        build_model(SHAPES[model], Path(folder.name))
        model = folder.name
    for seed in range(first_seed, first_seed + seeds):
        common = [f"seed={seed}", *(both or [])]
        runs = {
            name: BareRun(settings(agent, [*common, *own], model=model), threads=1)
            for name, own in (("defaults", []), ("changed", changes))
        }
        found = alternate(
            {name: lambda run=run: one_update(run) for name, run in runs.items()},
            updates,
            warm_up=0,
        )
        for name, made in found.items():
            last = made[-1].stats
            print(
                f"seed {seed} {name:<8} {' '.join(f'{update.stats.mean_return:+.2f}' for update in made)} | "
                f"rollout {1e3 * median(update.rollout_s for update in made[1:]):.2f} ms, "
                f"update {1e3 * median(update.update_s for update in made[1:]):.2f} ms a turn; "
                f"action entropy {last.action_entropy:.2f}, "
                f"first ratio {last.first_ratio:.5f}"
            )
        for part in ("rollout_s", "update_s"):
            of_turns = {
                name: [getattr(update, part) for update in made[1:]] for name, made in found.items()
            }
            ratio = ratios(of_turns["changed"], of_turns["defaults"])
            print(f"seed {seed}: a turn's {part[:-2]} takes {ratio:.2f} times as long", flush=True)


def one_update(run: BareRun) -> Update:
    began = time.process_time()
    run.play()
    played = time.process_time()
    stats = run.learner.update(run.rollout.take_batch())
    return Update(
        (played - began) / stats.turns, (time.process_time() - played) / stats.turns, stats
    )


if __name__ == "__main__":
    typer.run(main)
