"""Turns that are played and learnt from in a processor second, rollout and update together, with one thread.

    python -m benchmarks.turns cart_pole history=all --updates 3

Imports what older versions have, too: `long_horizon --other` runs this file by the code of another checkout.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Annotated

import typer

from benchmarks.bare_run import BareRun, settings


def main(
    agent: Annotated[str, typer.Argument(help="As of `train`.")],
    changes: Annotated[list[str] | None, typer.Argument(help="NAME=VALUE, as `train --set` takes them.")] = None,
    updates: Annotated[int, typer.Option(help="That count, after a first one that does not.")] = 2,
) -> None:
    run = BareRun(settings(agent, ["seed=11", *(changes or [])]), threads=1)
    turns_a_second(run)
    print(median(turns_a_second(run) for _ in range(updates)))


def turns_a_second(run: BareRun) -> float:
    began = time.process_time()
    stats = run.update()
    return stats.turns / (time.process_time() - began)


if __name__ == "__main__":
    typer.run(main)
