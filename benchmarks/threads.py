"""How many turns a second more threads play and learn from, next to processes that do nothing but take time.

    python -m benchmarks.threads
    python -m benchmarks.threads --spinning 2
    python -m benchmarks.threads --size 5M --set ppo.batch_size=256

Trains from the bundled model with the defaults, or all weights of a random one, without a session. One thread, two that
divide each batch, and two among which torch divides each operation take turns, an update each. The ratios of turns a
second to those of one thread, the median and the range of those of each round, come last.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import torch
import typer

from benchmarks.bare_run import BareRun, settings
from benchmarks.decoding import SHAPES, build_model
from benchmarks.timing import alternate, machine, ratios, spread
from llamagym_tui.engine.threads import use_threads
from llamagym_tui.model_registry import BUNDLED


def main(
    threads: Annotated[int, typer.Option(help="That are compared with one.")] = 2,
    spinning: Annotated[int, typer.Option(help="Processes next to it.")] = 0,
    rounds: Annotated[int, typer.Option(help="Updates on each.")] = 3,
    change: Annotated[list[str] | None, typer.Option("--set", help="As of `train`.")] = None,
    size: Annotated[str | None, typer.Option(help=f"Random weights: {', '.join(SHAPES)}.")] = None,
) -> None:
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as others:
        if size is not None:
            build_model(SHAPES[size], Path(folder), Path(__file__).with_name("first_model"))
        config = settings(
            "blackjack",
            ["seed=1", "ppo.critic_warmup_updates=0", *(change or [])],
            model=BUNDLED if size is None else folder,
            full_finetuning=True if size else None,
        )
        run = BareRun(config, threads=1)
        for _ in range(spinning):
            process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            others.callback(process.kill)

        def rate(count: int, *, by_torch: bool = False) -> float:
            """Turns a second of one update and its rollout."""
            use_threads(run.policy, count)
            if by_torch:
                run.policy.threads = 1
                torch.set_num_threads(count)
            began = time.perf_counter()
            return run.update().turns / (time.perf_counter() - began)

        found = alternate(
            {
                "1 thread": lambda: rate(1),
                f"{threads} threads, each a part of the batch": lambda: rate(threads),
                f"{threads} threads, all each operation": lambda: rate(threads, by_torch=True),
            },
            rounds,
        )
    alone = found["1 thread"]
    for name, rates in found.items():
        print(f"{name}: {spread(rates):.0f} turns/s")
    print(
        "; ".join(
            f"{name}: {ratios(rates, alone):.2f}"
            for name, rates in found.items()
            if rates is not alone
        )
    )


if __name__ == "__main__":
    typer.run(main)
