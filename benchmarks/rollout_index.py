"""Measures how long the index of many rollouts takes, and how much memory.

    python -m benchmarks.rollout_index
    python -m benchmarks.rollout_index --rollouts 1000000

A file as verl writes them is made in a temporary folder: 10 kB a rollout, 512 rollouts a step, eight to a prompt. Both
the first slice and all of it are timed, then a search through everything.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from pathlib import Path
from typing import Annotated

import psutil
import typer

from llamagym_tui.rollouts.index import Rollouts
from llamagym_tui.rollouts.search import Pattern, search

WORDS = ("so", "the", "sum", "of", "both", "is", "seven", "and", "then", "we", "add", "three")
OF_A_STEP = 512
OF_A_PROMPT = 8
SAID = 2_000
"""Words of a rollout."""


def write(path: Path, rollouts: int) -> None:
    """Write as many rollouts as verl would."""
    chosen = random.Random(1)
    with path.open("w") as file:
        for at in range(rollouts):
            record = {
                "input": f"user\nWhat is {at // OF_A_PROMPT} plus three?\nassistant\n",
                "output": " ".join(chosen.choices(WORDS, k=SAID)),
                "gts": str(at),
                "score": float(chosen.random() < 0.5),
                "step": at // OF_A_STEP,
            }
            file.write(json.dumps(record, ensure_ascii=False) + "\n")


def main(
    rollouts: Annotated[int, typer.Option(help="How many are written.")] = 100_000,
) -> None:
    """Print the seconds of the first slice, of the whole index and of a search, and the memory."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rollouts.jsonl"
        write(path, rollouts)
        print(f"{rollouts:,} rollouts, {path.stat().st_size / 1e9:.2f} GB")
        before = psutil.Process().memory_info().rss
        began = time.perf_counter()
        index = Rollouts(str(path))
        index.read_on()
        print(f"first slice: {time.perf_counter() - began:.2f} s, {len(index.entries):,} rollouts")
        while index.read_on():
            pass
        print(f"whole index: {time.perf_counter() - began:.1f} s, {len(index.entries):,} rollouts")
        print(f"memory: {(psutil.Process().memory_info().rss - before) / 2**20:.0f} MiB more")
        began = time.perf_counter()
        found = [each for each in search(index, index.entries, Pattern("xyzzy")) if each]
        print(f"search through all: {time.perf_counter() - began:.1f} s, {len(found)} found")


if __name__ == "__main__":
    typer.run(main)
