"""What long episodes cost: a late turn over an early one, and history 0 over whole conversations.

    python -m benchmarks.long_horizon
    python -m benchmarks.long_horizon --other ../old

Times are processor seconds of one thread, so that other work on the machine weighs less. The first table is of an
environment whose observations never repeat, with history 0, with and without the memory of prompts. The second has the
turns that are played and learnt from in a processor second, rollout and update together: both histories in turn, or
the defaults of this checkout and of another one, each in a process of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated

import typer

from benchmarks import turns
from benchmarks.against import HERE, figure_by_code_of
from benchmarks.bare_run import BareRun, settings
from benchmarks.first_frame import environment
from benchmarks.timing import alternate, machine, ratios, spread
from benchmarks.turns import counting_rollout, turns_a_second
from llamagym_tui.engine.policy import known_tokens

TURNS, AROUND, ENVS = 400, 20, 4


def main(
    agents: Annotated[
        list[str] | None, typer.Argument(help="Of the second table; CliffWalking and CartPole.")
    ] = None,
    updates: Annotated[
        int, typer.Option(help="Of each history or checkout; the first one does not count.")
    ] = 3,
    other: Annotated[
        Path | None, typer.Option(help="Folder of another checkout; the second table alone.")
    ] = None,
) -> None:
    print(machine())
    if other is None:
        late_turns(updates)
    for agent in agents or ["CliffWalking-v1", "CartPole-v1", "blackjack"]:
        if other is None:
            runs = {
                h: BareRun(settings(agent, ["seed=11", f"history={h}"]), threads=1)
                for h in ("0", "all")
            }
            compare(
                agent,
                {f"history {h}": partial(turns_a_second, run) for h, run in runs.items()},
                updates - 1,
            )
        else:
            with environment() as env:
                sides = {"this": HERE, "other": other.resolve()}
                words = (Path(turns.__file__), agent, "--updates", 1)
                rates = {
                    name: partial(figure_by_code_of, code, env, *words)
                    for name, code in sides.items()
                }
                compare(agent, rates, updates - 1)


def late_turns(updates: int) -> None:
    run = BareRun(settings("cart_pole", ["seed=11"]), threads=1)
    room = known_tokens.REMEMBERED, known_tokens.HELD
    for name, held in (("with", room), ("without", (0, 0))):
        known_tokens.REMEMBERED, known_tokens.HELD = held
        found = [late_over_early(run) for _ in range(updates)]
        print(
            f"history 0, {name} memory of prompts: turn {TURNS} takes {spread(found):.2f} times turn 4",
            flush=True,
        )
    known_tokens.REMEMBERED, known_tokens.HELD = room


def compare(agent: str, sides: dict[str, Callable[[], float]], rounds: int) -> None:
    rates = alternate(sides, rounds)
    this, that = rates.values()
    figures = ", ".join(f"{median(found):.0f} with {side}" for side, found in rates.items())
    print(f"{agent}: turns a second {figures}: {ratios(this, that):.2f} times as many", flush=True)


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
