"""How quickly runs open in the list: one of 24 hours, and 300 of a few minutes, the first time and afterwards.

    python -m benchmarks.long_run                       # records three minutes of a real run, and repeats them
    python -m benchmarks.long_run --recorded FOLDER     # repeats another recorded run

The long log is what the event log would have written in that time: the recorded events again and again, with counts
and stamps that go on. Exits with 1 where the long run takes over `LONG_S`, or the many take over `MANY_S`.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from llamagym_tui.protocol import event_log
from llamagym_tui.protocol.events import AnyEvent, Hello, PolicyMapLaidOut, RunFinished, RunStarted
from llamagym_tui.run_store import CONFIG_FILE, EVENTS_FILE

LONG_S, MANY_S = 2.0, 3.0
ONCE = (Hello, RunStarted, PolicyMapLaidOut, RunFinished)


def main(
    hours: Annotated[float, typer.Option(help="Length of the long run.")] = 24.0,
    runs: Annotated[int, typer.Option(help="Number of the short ones.")] = 300,
    recorded: Annotated[
        Path | None, typer.Option(help="A recorded run. None: one is recorded.")
    ] = None,
) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary)
        os.environ["LLAMAGYM_TUI_DATA"] = str(home)
        source = recorded or a_recorded_run(home / "recorded")
        long = home / "runs" / "long"
        lengthen(source, long, hours)
        size = (long / EVENTS_FILE).stat().st_size / 2**20
        print(f"a run of {hours:g} h has {size:.1f} MiB of events, {size / hours:.2f} MiB/h")
        slow = opened(f"the run of {hours:g} h") > LONG_S
        shutil.rmtree(long)
        for number in range(runs):
            folder = home / "runs" / f"short-{number}"
            folder.mkdir(parents=True)
            for name in (CONFIG_FILE, EVENTS_FILE):
                shutil.copy(source / name, folder / name)
        slow = opened(f"{runs} runs") > MANY_S or slow
    raise typer.Exit(1 if slow else 0)


def a_recorded_run(folder: Path) -> Path:
    command = [
        sys.executable,
        "-m",
        "llamagym_tui",
        "train",
        "blackjack",
        "--minutes",
        "3",
        "--json",
    ]
    subprocess.run([*command, "--run-dir", str(folder)], check=True, stdout=subprocess.DEVNULL)
    return folder


def lengthen(source: Path, folder: Path, hours: float) -> None:
    """A run folder of so many hours, made of the events of a recorded one."""
    folder.mkdir(parents=True)
    shutil.copy(source / CONFIG_FILE, folder / CONFIG_FILE)
    events = list(event_log.read(source / EVENTS_FILE))
    log = event_log.EventLog(folder / EVENTS_FILE)
    for event in itertools.takewhile(lambda event: event.at_s < 3600 * hours, repeated(events)):
        log.append(event)
    log.close()


def repeated(events: list[AnyEvent]) -> Iterator[AnyEvent]:
    """The events again and again."""
    shifts: dict[str, Any] = {"episodes": 0, "episode": 0, "env_steps": 0, "update": 0}
    lasts = {
        name: max((getattr(event, name, None) or 0 for event in events), default=0)
        for name in shifts
    }
    yield from (event for event in events if isinstance(event, ONCE[:-1]))
    for lap in itertools.count():
        for event in events:
            if not isinstance(event, ONCE):
                grown = {
                    name: getattr(event, name) + lap * lasts[name]
                    for name in shifts
                    if hasattr(event, name)
                }
                yield msgspec.structs.replace(
                    event, at_s=event.at_s + lap * events[-1].at_s, **grown
                )


def opened(name: str) -> float:
    """Seconds until the list of runs has all its lines, the first time; printed with those of the second."""
    first, second = (asyncio.run(seconds_to_lines()) for _ in range(2))
    print(f"{name}: {first:.2f} s the first time, then {second:.2f} s")
    return max(first, second)


async def seconds_to_lines() -> float:
    from llamagym_tui.app.app import LlamaGymApp

    app = LlamaGymApp()
    async with app.run_test(size=(120, 34)) as pilot:
        began = time.perf_counter()
        await pilot.press("l")
        while not (rows := list(app.screen.query_one("#runs").rows.values())) or not all(  # type: ignore[attr-defined]
            row.summary or row.fault for row in rows
        ):
            await asyncio.sleep(0.01)
        return time.perf_counter() - began


if __name__ == "__main__":
    typer.run(main)
