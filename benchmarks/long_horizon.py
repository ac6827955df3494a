"""What a late turn of a long episode costs over an early one, with history 0.

    python -m benchmarks.long_horizon

The environment's observations never repeat; the turns are played with and without the memory of prompts. Times are
processor seconds of one thread, so that other work on the machine weighs less.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Annotated

import typer

from benchmarks.bare_run import BareRun, settings
from benchmarks.timing import machine, spread
from benchmarks.turns import counting_rollout
from llamagym_tui.engine.policy import known_tokens

TURNS = 400
"""Turns of an episode, the last of which are compared with the first."""
AROUND = 20
"""Turns whose median is the time of a late or an early one."""
ENVS = 4
"""Environments that are stepped together."""


def main(
    rounds: Annotated[int, typer.Option(help="Of episodes, with the memory and without.")] = 3,
) -> None:
    print(machine())
    run = BareRun(settings("cart_pole", ["seed=11"]), threads=1)
    room = known_tokens.REMEMBERED, known_tokens.HELD
    for name, remembered, held in (("with", *room), ("without", 0, 0)):
        known_tokens.REMEMBERED = remembered
        known_tokens.HELD = held
        found = [late_over_early(run) for _ in range(rounds)]
        print(
            f"history 0, {name} memory of prompts: turn {TURNS} takes {spread(found):.2f} times turn 4",
            flush=True,
        )


def late_over_early(run: BareRun) -> float:
    """Processor seconds of the last steps of episodes over those of the first, a step being a turn of each."""
    run.policy.history = 0
    rollout = counting_rollout(run, TURNS, ENVS)
    seconds = []
    for _ in range(TURNS):
        began = time.process_time()
        rollout.step()
        seconds.append(time.process_time() - began)
    rollout.close()
    return median(seconds[-AROUND:]) / median(seconds[3 : 3 + AROUND])


if __name__ == "__main__":
    typer.run(main)
