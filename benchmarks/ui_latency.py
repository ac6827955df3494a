"""How quick the app feels while a run emits many events: key to paint, lag of the event loop, processor time.

The real app runs in a pseudo-terminal; in the trainer's place a script sends real events over the real wire: first
5,000 turns at once (the view keeps the last 1,600), then 200 events a second of the usual mix. A key's time runs from
its write to the terminal until bytes come out that only its effect explains.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import typer

from benchmarks.terminal import PATIENCE_S, Terminal
from llamagym_tui.protocol import events, wire
from llamagym_tui.protocol.commands import Pause, Resume, Stop

TURNS = 5_000
EVENTS_PER_S = 200
BEAT_S = 0.01
"""Seconds between two beats of the event loop's pulse."""
PROMPT = "You are playing Blackjack. Reply with an action: stick or hit."
RUN = events.RunStarted(
    agent="Blackjack",
    env_id="Blackjack-v1",
    model="bundled",
    run_dir="",
    seed=1,
    n_envs=128,
    mode="train",
    system_prompt=PROMPT,
    prompt_version=1,
    action_names=["stick", "hit"],
    baselines={"random": -0.396, "optimal": -0.0466},
    device="cpu",
    episodes=0,
    updates=0,
)
START_S = 300.0
"""Seconds until the first turns are painted, at most."""
TARGETS = {"key p95": 35.0, "lag max": 100.0, "busy": 10.0, "idle": 2.0}
"""Milliseconds and percent of one core."""


# The trainer's part


def mix(seed: int) -> Iterator[events.AnyEvent]:
    """Events of a run of Blackjack, without end; each observation has a serial number of its own."""
    rng, serial, episodes, updates = random.Random(seed), 0, 0, 0
    while True:
        yield events.EpisodeStarted(
            episode=episodes, system_prompt=PROMPT, prompt_version=1, mode="train"
        )
        turns = rng.choice((1, 1, 2, 3))
        for turn in range(turns):
            serial += 1
            cards = f"Your total: {rng.randint(4, 21)}. Usable ace: no. Dealer shows: {rng.randint(2, 10)}."
            yield events.ObservationShown(
                episode=episodes, turn=turn, text=f"#{serial:07}# {cards}"
            )
            action = rng.randint(0, 1)
            for piece in ('{"act', 'ion"', ": ", str(action), "}"):
                yield events.TokensStreamed(episode=episodes, turn=turn, text=piece)
            yield events.TurnFinished(
                episode=episodes,
                turn=turn,
                reply=f'{{"action": {action}}}',
                action=action,
                action_name=("stick", "hit")[action],
                how="json",
                reward=0.0,
            )
        won = rng.choice((-1.0, 1.0))
        yield events.EpisodeFinished(
            episode=episodes, episode_return=won, length=turns, end="terminated"
        )
        episodes += 1
        if episodes % 2 == 0:
            yield counted(rng, episodes)
        if episodes % 8 == 0:
            updates += 1
            yield events.PhaseChanged(phase="updating")
            yield events.UpdateFinished(update=updates, episodes=episodes * 64, stats=figures(rng))
            yield events.PhaseChanged(phase="rolling_out")


def counted(rng: random.Random, episodes: int) -> events.EpisodesCounted:
    """A batch of 128 episodes."""
    return events.EpisodesCounted(
        returns=[rng.choice((-1.0, 1.0)) for _ in range(128)],
        lengths=[1] * 128,
        mode="train",
        prompt_version=1,
        episodes=episodes * 64,
        env_steps=episodes * 90,
        episodes_per_s=200.0,
    )


def figures(rng: random.Random) -> events.UpdateStats:
    """Figures of an update, each at random."""
    fields = msgspec.structs.fields(events.UpdateStats)
    return events.UpdateStats(
        **{field.name: 7 if field.type is int else rng.random() for field in fields}
    )


def trainer() -> None:
    """Send `TURNS` turns at once, then `EVENTS_PER_S`; nothing while paused."""
    out, lock, paused, ended = (
        sys.stdout.buffer,
        threading.Lock(),
        threading.Event(),
        threading.Event(),
    )

    def send(event: events.AnyEvent) -> None:
        with lock:
            out.write(wire.framed(wire.encoded(event)))
            out.flush()

    def listen() -> None:
        while (payload := wire.read_frame(sys.stdin.buffer)) is not None:
            match wire.decode_command(payload):
                case Pause():
                    paused.set()
                    send(events.PhaseChanged(phase="paused"))
                case Resume():
                    send(events.PhaseChanged(phase="rolling_out"))
                    paused.clear()
                case Stop():
                    break
        ended.set()

    send(events.Hello(protocol=events.PROTOCOL_VERSION, pid=os.getpid()))
    wire.read_frame(sys.stdin.buffer)  # StartRun
    send(RUN)
    send(events.PhaseChanged(phase="rolling_out"))
    threading.Thread(target=listen, daemon=True).start()
    stream, turns = mix(1), 0
    while turns < TURNS:
        event = next(stream)
        turns += isinstance(event, events.TurnFinished)
        send(event)
    due = time.monotonic()
    while not ended.is_set():
        due = max(due + 1 / EVENTS_PER_S, time.monotonic() - 0.1)
        time.sleep(max(0.0, due - time.monotonic()))
        if not paused.is_set():
            send(next(stream))
    send(events.RunFinished(episodes=0, env_steps=0, updates=0, elapsed_s=0.0))


# The app's part


class Beat(NamedTuple):
    """A late beat of the event loop."""

    at_s: float
    """Monotonic, the same clock in both processes."""
    lag_s: float
    processor_s: float
    """Processor time of the app's main thread since the beat before."""


class Notes(msgspec.Struct):
    """What the app measured in its own process."""

    beats: list[Beat] = []
    processor: list[tuple[float, float]] = []
    """Monotonic time, and processor seconds of the process until then."""


def app(notes_path: str, run_dir: str) -> None:
    """The app as it is, and a pulse that SIGUSR1 turns on and off."""
    from llamagym_tui.app.app import LlamaGymApp, run_app
    from llamagym_tui.app.trainer_client import TrainerClient
    from llamagym_tui.config import RunConfig

    notes, beating = Notes(), False
    pulses: list[asyncio.Task[None]] = []

    class Measured(LlamaGymApp):
        def on_mount(self) -> None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, toggle)
            self.set_interval(
                0.5, lambda: notes.processor.append((time.monotonic(), time.process_time()))
            )

    def toggle() -> None:
        nonlocal beating
        beating = not beating
        if beating:
            pulses.append(asyncio.create_task(pulse()))

    async def pulse() -> None:
        while beating:
            began, used = time.monotonic(), time.thread_time()
            await asyncio.sleep(BEAT_S)
            now = time.monotonic()
            notes.beats.append(Beat(now, now - began - BEAT_S, time.thread_time() - used))

    client = TrainerClient((sys.executable, "-m", "benchmarks.ui_latency", "--role", "trainer"))
    measured = Measured(
        RunConfig(agent="blackjack", run_dir=run_dir, seed=1), client_factory=lambda: client
    )
    run_app(measured)
    Path(notes_path).write_bytes(msgspec.json.encode(notes))


# The person's part


class AppTerminal(Terminal):
    """The app, and which observations it has painted."""

    low = 10**9
    """The least serial number painted since `forget`."""
    high = 0
    """The greatest one."""

    def forget(self) -> None:
        self.low = 10**9
        self.high = 0

    def read(self, timeout_s: float) -> bytes:
        painted = super().read(timeout_s)
        for serial in map(int, re.findall(rb"#(\d{7})#", painted)):
            self.low = min(self.low, serial)
            self.high = max(self.high, serial)
        return painted

    def press(self, key: bytes, effect: Callable[[bytes], bool]) -> float:
        """Seconds from a key until its effect is painted."""
        began = time.monotonic()
        self.write(key)
        self.wait(effect, f"What the key {key!r} does")
        return time.monotonic() - began

    def follow(self, key: bytes) -> None:
        """Press a key after which new observations are painted, and wait until one is.

        A key that is written while an escape waits in a busy app is read as one key with it, so each has to be waited
        for, however long it takes.
        """
        self.forget()
        self.write(key)
        self.wait(lambda _: self.high > 0, f"A new observation after the key {key!r}")


UP = b"\x1b[5~"
END = b"\x1b[F"
ESCAPE = b"\x1b"
Times = dict[str, list[float]]


def scroll(terminal: AppTerminal, times: Times) -> None:
    """Three pages up from the end, and back to it."""
    terminal.watch(0.5)
    terminal.follow(END)
    for _ in range(3):
        low = terminal.low
        times["page up"].append(terminal.press(UP, lambda _, low=low: terminal.low < low))
        terminal.watch(0.15)
    high = terminal.high
    times["end"].append(terminal.press(END, lambda _: terminal.high > high))
    terminal.watch(0.3)


def search(terminal: AppTerminal, times: Times) -> None:
    """Open the line, type a word that each turn has, leave the line."""
    times["/"].append(terminal.press(b"/", lambda painted: b"go through the matches" in painted))
    terminal.watch(0.2)
    typed = b"dealer"
    terminal.press(typed, lambda painted: typed in painted)
    for letter in b" shows":
        terminal.watch(0.15)
        typed += bytes([letter])
        pressed = terminal.press(
            bytes([letter]), lambda painted, typed=typed: typed.rstrip() in painted
        )
        if letter != ord(" "):  # the cursor looks like it
            times["typing a search"].append(pressed)
    terminal.press(ESCAPE, lambda painted: b"All keys" in painted)
    terminal.watch(0.3)
    terminal.follow(END)
    terminal.watch(0.3)


def open_screens(terminal: AppTerminal, times: Times) -> None:
    """Help and metrics, opened and left."""
    for key, words in ((b"?", b"escape closes"), (b"m", b"KL")):
        name = key.decode()
        first = f"{name}, the first time"
        times[name if first in times else first].append(
            terminal.press(key, lambda painted, words=words: words in painted)
        )
        terminal.watch(0.5)
        terminal.follow(ESCAPE)
        terminal.watch(0.5)


class Phase(NamedTuple):
    """A stretch of time, monotonic."""

    begin_s: float
    end_s: float


def during(seconds: float, terminal: AppTerminal) -> Phase:
    """A stretch without keys."""
    begin_s = time.monotonic()
    terminal.watch(seconds)
    return Phase(begin_s, time.monotonic())


def share(notes: Notes, phase: Phase) -> float:
    """Percent of a core that the app used."""
    within = [
        (at_s, used_s) for at_s, used_s in notes.processor if phase.begin_s <= at_s <= phase.end_s
    ]
    return 100 * (within[-1][1] - within[0][1]) / (within[-1][0] - within[0][0])


def p95(values: list[float]) -> float:
    """The value that 95 of 100 do not exceed."""
    return sorted(values)[-(-95 * len(values) // 100) - 1]


def report(times: Times, lags: list[Beat], busy: float, idle: float) -> None:
    pressed = [value for values in times.values() for value in values]
    for name, values in [*times.items(), ("all keys", pressed)]:
        print(
            f"{name:<20} {len(values):>4} times   p50 {1000 * statistics.median(values):6.1f} ms   "
            f"p95 {1000 * p95(values):6.1f} ms   max {1000 * max(values):6.1f} ms"
        )
    worst = max(lags, key=lambda beat: beat.lag_s)
    print(
        f"event loop           {len(lags):>4} beats   lag p95 {1000 * p95([beat.lag_s for beat in lags]):.1f} ms   "
        f"max {1000 * worst.lag_s:.1f} ms (of it {1000 * worst.processor_s:.1f} ms processor time of the app)"
    )
    print(f"processor            busy {busy:.1f} %   idle {idle:.1f} % of one core")
    got = {
        "key p95": 1000 * p95(pressed),
        "lag max": 1000 * worst.lag_s,
        "busy": busy,
        "idle": idle,
    }
    print(
        "over the target: "
        + ", ".join(f"{name} {got[name] / most:.2f}" for name, most in TARGETS.items())
    )


def measure(rounds: int, seconds: float) -> None:
    """Start the app, wait for its turns, press keys, then none, then pause it."""
    with tempfile.TemporaryDirectory() as folder:
        notes_path = Path(folder) / "notes.json"
        env = {**os.environ, "LLAMAGYM_TUI_DATA": folder, "LLAMAGYM_TUI_CONFIG": folder}
        command = [
            sys.executable,
            "-m",
            "benchmarks.ui_latency",
            "--role",
            "app",
            str(notes_path),
            f"{folder}/run",
        ]
        with AppTerminal(command, env) as terminal:
            terminal.wait(lambda _: terminal.high >= TURNS, f"Turn {TURNS:,}", START_S)
            terminal.watch(3.0)
            terminal.process.send_signal(signal.SIGUSR1)
            times: Times = defaultdict(list)
            began_s = time.monotonic()
            for _ in range(rounds):
                for presses in (scroll, search, open_screens):
                    presses(terminal, times)
            keyed = Phase(began_s, time.monotonic())
            terminal.process.send_signal(signal.SIGUSR1)
            busy = during(seconds, terminal)
            terminal.press(b" ", lambda painted: b"paused" in painted)
            terminal.watch(2.0)
            idle = during(seconds, terminal)
            terminal.press(b"q", lambda painted: b"Leav" in painted)
            terminal.write(b"\r")
            with contextlib.suppress(SystemExit):  # it ends, as it should
                terminal.watch(PATIENCE_S)
            terminal.process.wait(PATIENCE_S)
        notes = msgspec.json.decode(notes_path.read_bytes(), type=Notes)
    lags = [beat for beat in notes.beats if keyed.begin_s <= beat.at_s <= keyed.end_s]
    report(times, lags, share(notes, busy), share(notes, idle))


def main(
    paths: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
    rounds: Annotated[int, typer.Option(help="How often all keys are pressed.")] = 10,
    seconds: Annotated[float, typer.Option(help="Of each measurement of processor time.")] = 10.0,
    role: Annotated[str, typer.Option(hidden=True)] = "person",
) -> None:
    match role:
        case "app":
            app(*(paths or []))
        case "trainer":
            trainer()
        case _:
            measure(rounds, seconds)


if __name__ == "__main__":
    typer.run(main)
