"""Time from starting the trainer process to the first streamed token of a reply.

    python -m benchmarks.first_reply --runs 5

Prints the stages of each start, and the median last.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.timing import spread
from llamagym_tui.app.trainer_client import TrainerClient
from llamagym_tui.config import RunConfig
from llamagym_tui.protocol.events import Hello, RunStarted, TokensStreamed


def main(runs: Annotated[int, typer.Option(help="Starts to measure.")] = 5) -> None:
    found = [asyncio.run(first_reply_s()) for _ in range(runs)]
    print(f"median seconds to the first reply {spread(found):.2f}")


async def first_reply_s() -> float:
    """Seconds of one start; its stages are printed."""
    marks: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        client = TrainerClient()
        began = time.perf_counter()
        await client.start(RunConfig(agent="blackjack", run_dir=str(Path(folder) / "run")))
        async for event in client.events():
            if isinstance(event, Hello | RunStarted | TokensStreamed):
                marks.setdefault(type(event).__name__, time.perf_counter() - began)
            if isinstance(event, TokensStreamed):
                break
        await client.stop(10.0)
    print("  ".join(f"{name} {elapsed_s:.2f} s" for name, elapsed_s in marks.items()), flush=True)
    return marks["TokensStreamed"]


if __name__ == "__main__":
    typer.run(main)
