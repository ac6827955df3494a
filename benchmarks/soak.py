"""Whether a run may be left alone: memory of both processes, size of the event log, and key to paint, over time.

    python -m benchmarks.soak                   # two hours of the real trainer at full speed
    python -m benchmarks.soak --minutes 10
    python -m benchmarks.soak --events 1000000  # so many scripted events through the app, as fast as it takes them

The app paints in a pseudo-terminal that is read all the time. Memory is the least that a process holds within a
sample's time: what an update or a painting needs comes and goes. Growth is the median of the slopes between any two
samples of the last half. Exits with 1 where a figure is over its limit.
"""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from benchmarks.terminal import Terminal
from benchmarks.ui_latency import RUN, mix, p95
from llamagym_tui.protocol import events, wire

MIB = 2**20
LIMITS = {"ui": 1.0, "trainer": 1.0, "log": 6.0}
"""MiB an hour in the last half of a run; of the log that is figures, which are all kept."""
SCRIPTED_MIB = 4.0
"""Growth over the second half of the scripted events."""
SLOWER = 1.5
"""Key to paint at the end over that at the start, unless it is below `QUICK_MS`."""
QUICK_MS = 50.0
PRESSES = 10
LOOK_S = 0.02
"""Seconds between two looks at the memory, which is least for a moment after each update."""


class Sample(NamedTuple):
    at_s: float
    ui: float
    """MiB that are resident, as the others."""
    trainer: float
    peak: float
    """The trainer's most."""
    log: float
    """MiB of the event log."""


def main(
    paths: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
    minutes: Annotated[float, typer.Option(help="Of the real trainer.")] = 120.0,
    scripted: Annotated[
        int, typer.Option("--events", help="Scripted events, in place of the real trainer.")
    ] = 0,
    agent: Annotated[str, typer.Option(help="That plays.")] = "blackjack",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Settings of the run, NAME=VALUE.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Where the run is kept; None: nowhere.")
    ] = None,
    role: Annotated[str, typer.Option(hidden=True)] = "person",
) -> None:
    match role:
        case "app":
            app((paths or [""])[0], scripted)
        case "trainer":
            trainer(scripted)
        case _:
            with tempfile.TemporaryDirectory() as temporary:
                home = folder or Path(temporary)
                faults = (
                    script_soak(home, scripted)
                    if scripted
                    else real_soak(home, minutes, agent, settings or [])
                )
            for fault in faults:
                print(f"over the limit: {fault}")
            raise typer.Exit(1 if faults else 0)


# What is measured


def real_soak(home: Path, minutes: float, agent: str, settings: list[str]) -> list[str]:
    """Two processes as a person starts them; what is over its limit."""
    command = [
        sys.executable,
        "-m",
        "llamagym_tui",
        agent,
        "--run-dir",
        str(home / "run"),
        "--seed",
        "1",
    ]
    command += [word for setting in settings for word in ("--set", setting)]
    samples: list[Sample] = []
    with terminal_of(command, home) as terminal:
        terminal.watch(5.0)
        terminal.write(b"\x1b")  # the tour of a first start
        while not (home / "run" / "model").exists():
            terminal.watch(1.0)
        terminal.write(b"++")  # a first run begins at a pace to watch
        first = key_to_paint(terminal)
        began, every_s = time.monotonic(), 60 * minutes / 60
        print("   min     UI MiB   trainer MiB   (at most)   log MiB", flush=True)
        while (now_s := time.monotonic() - began) <= 60 * minutes:
            samples.append(sample(terminal, home, now_s, every_s))
            if len(samples) % 5 == 1:
                print_sample(samples[-1])
        last = key_to_paint(terminal)
        quit_app(terminal)
    faults = [
        f"{name} grows by {growth:.2f} MiB/h, limit {LIMITS[name]}"
        for name in LIMITS
        if (growth := report(name, samples[len(samples) // 2 :])) > LIMITS[name]
    ]
    return faults + slower(first, last)


def script_soak(home: Path, count: int) -> list[str]:
    """The app, and a script in the trainer's place; what is over its limit."""
    command = [sys.executable, "-m", "benchmarks.soak", "--role", "app"]
    command += ["--events", str(count), str(home / "run")]
    sizes: list[float] = []
    with terminal_of(command, home) as terminal:
        terminal.wait(lambda painted: b"#0000" in painted)
        print("    events     UI MiB", flush=True)
        keys: list[list[float]] = []
        began, marks = time.monotonic(), home / "marks"
        for tenth in range(1, 11):
            while not marks.exists() or int(marks.read_text() or 0) < tenth * count // 10:
                terminal.watch(0.2)
            terminal.watch(2.0)
            sizes.append(memory(terminal.process.pid))
            print(
                f"{tenth * count // 10:>10,} {sizes[-1]:>10.1f}   {time.monotonic() - began:6.0f} s",
                flush=True,
            )
            if tenth in (1, 9):
                keys.append(key_to_paint(terminal))
        quit_app(terminal)
    grown = sizes[-1] - sizes[4]
    print(f"ui: {grown:+.2f} MiB over the second half of {count:,} events")
    faults = (
        [f"the app grew by {grown:.2f} MiB, limit {SCRIPTED_MIB}"] if grown > SCRIPTED_MIB else []
    )
    return faults + slower(*keys)


def report(name: str, half: list[Sample]) -> float:
    """MiB an hour in the last half, printed."""
    points = [(sample.at_s / 3600, getattr(sample, name)) for sample in half]
    slopes = [(to[1] - of[1]) / (to[0] - of[0]) for of, to in itertools.combinations(points, 2)]
    growth = statistics.median(slopes)
    print(f"{name}: {growth:+.2f} MiB/h in the last half")
    return growth


def slower(first: list[float], last: list[float]) -> list[str]:
    """Key to paint at the start and at the end, printed; a sentence if it has become slow."""
    before, after = p95(first), p95(last)
    print(
        f"key to paint: at the start p50 {statistics.median(first):.0f} ms, p95 {before:.0f} ms; "
        f"at the end p50 {statistics.median(last):.0f} ms, p95 {after:.0f} ms"
    )
    if after > max(QUICK_MS, SLOWER * before):
        return [f"key to paint rose from {before:.0f} to {after:.0f} ms"]
    return []


def sample(terminal: Terminal, home: Path, at_s: float, seconds: float) -> Sample:
    """The least memory of both processes within so many seconds."""
    ui: list[float] = []
    trainer: list[float] = []
    end, child = time.monotonic() + seconds, (children(terminal.process.pid) or [0])[0]
    while not ui or time.monotonic() < end:
        terminal.watch(LOOK_S)
        ui.append(memory(terminal.process.pid))
        trainer.append(memory(child))
    log = home / "run" / "events.jsonl"
    return Sample(
        at_s, min(ui), min(trainer), max(trainer), log.stat().st_size / MIB if log.exists() else 0.0
    )


def print_sample(found: Sample) -> None:
    print(
        f"{found.at_s / 60:>6.1f} {found.ui:>10.1f} {found.trainer:>13.1f} {found.peak:>11.1f} {found.log:>9.2f}",
        flush=True,
    )


def memory(pid: int) -> float:
    """MiB of a process that are resident."""
    if (statm := Path(f"/proc/{pid}/statm")).exists():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MIB
    found = subprocess.run(
        ["ps", "-o", "rss=", "-p", str(pid)], stdout=subprocess.PIPE, text=True
    ).stdout
    return int(found or 0) / 1024


def children(pid: int) -> list[int]:
    found = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid="], stdout=subprocess.PIPE, text=True
    ).stdout
    return [
        int(child) for child, parent in map(str.split, found.splitlines()) if int(parent) == pid
    ]


# The person's part


def terminal_of(command: list[str], home: Path) -> Terminal:
    return Terminal(
        command, {**os.environ, "LLAMAGYM_TUI_DATA": str(home), "LLAMAGYM_TUI_CONFIG": str(home)}
    )


def key_to_paint(terminal: Terminal) -> list[float]:
    """Milliseconds from the key of the help until it is painted."""
    found = []
    for _ in range(PRESSES):
        began = time.monotonic()
        terminal.write(b"?")
        terminal.wait(lambda painted: b"escape closes" in painted)
        found.append(1000 * (time.monotonic() - began))
        terminal.watch(0.3)
        terminal.write(b"\x1b")
        terminal.watch(0.5)
    return found[1:]  # the first one imports the screen


def quit_app(terminal: Terminal) -> None:
    terminal.write(b"\x11")
    terminal.watch(1.0)
    terminal.write(b"\r")
    try:
        terminal.watch(30.0)
    except SystemExit:
        terminal.process.wait()  # it ends, as it should


# The app's and the trainer's part


def app(run_dir: str, count: int) -> None:
    """The app, which writes down how many events it has taken."""
    from llamagym_tui.app.app import LlamaGymApp, run_app
    from llamagym_tui.app.trainer_client import TrainerClient
    from llamagym_tui.config import RunConfig

    marks = Path(run_dir).parent / "marks"
    taken = 0

    class Counting(TrainerClient):
        async def events(self):  # type: ignore[no-untyped-def]
            nonlocal taken
            async for event in super().events():
                taken += 1
                if taken % 1000 == 0:
                    marks.write_text(str(taken))
                yield event

    client = Counting(
        (sys.executable, "-m", "benchmarks.soak", "--role", "trainer", "--events", str(count))
    )
    run_app(
        LlamaGymApp(
            RunConfig(agent="blackjack", run_dir=run_dir, seed=1), client_factory=lambda: client
        )
    )


def trainer(count: int) -> None:
    """Send as many events as the app takes, then wait for its end."""
    out = sys.stdout.buffer
    opening = [events.Hello(protocol=events.PROTOCOL_VERSION, pid=os.getpid()), RUN]
    for event in itertools.chain(
        opening, [events.PhaseChanged(phase="rolling_out")], itertools.islice(mix(1), count)
    ):
        out.write(wire.framed(wire.encoded(event)))
        out.flush()
    while wire.read_frame(sys.stdin.buffer) is not None:
        pass


if __name__ == "__main__":
    typer.run(main)
