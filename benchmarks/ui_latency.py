"""Measures the app while a run emits many events: key to paint, and processor time.

    python -m benchmarks.ui_latency
    python -m benchmarks.ui_latency --first-frame 7

The real app runs in a pseudo-terminal; in the trainer's place a script sends real events over the real wire: first
2,000 turns at once, then 200 events a second of the usual mix. A key's time runs from its write to the terminal until
bytes come out that only its effect explains. `--first-frame` times starts of the playground and of an empty Textual app
in turn instead. POSIX only.
"""

from __future__ import annotations

import fcntl
import os
import pty
import random
import re
import select
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Self

import msgspec
import psutil
import typer

from benchmarks.timing import alternate, ratios, spread
from llamagym_tui.protocol import events, wire

COLUMNS = 120
ROWS = 34
PATIENCE_S = 30.0
ROUNDS = 10
"""How often all keys are pressed."""
QUIET_S = 10.0
"""Seconds in which processor time is measured."""
START_S = 300.0
"""Seconds until the first turns are painted, at most."""
TURNS = 2_000
EVENTS_PER_S = 200
PROMPT = "You are playing Blackjack. Reply with an action: stick or hit."
RUN = events.RunStarted(
    agent="Blackjack",
    model="bundled",
    run_dir="",
    n_envs=128,
    mode="train",
    system_prompt=PROMPT,
    prompt_version=1,
    baselines={"random": -0.396, "optimal": -0.0466},
    episodes=0,
    updates=0,
)
STATS = events.UpdateStats(
    **{field.name: field.type(7) for field in msgspec.structs.fields(events.UpdateStats)}
)
EMPTY = """
from textual.app import App
from textual.widgets import Static
class Empty(App):
    def compose(self):
        yield Static("first-frame")
Empty().run()
"""
PLAYGROUND = ["-m", "llamagym_tui", "blackjack"]
PAINTED = b"opens a table"
"""In the first frame of the playground."""


# The trainer's part


def mix(seed: int) -> Iterator[events.AnyEvent]:
    """Events of a run of Blackjack, without end; each observation has a serial number of its own."""
    rng = random.Random(seed)
    serial = 0
    episodes = 0
    updates = 0
    while True:
        yield events.EpisodeStarted(
            episode=episodes, system_prompt=PROMPT, prompt_version=1, mode="train"
        )
        turns = rng.choice((1, 1, 2, 3))
        for turn in range(turns):
            serial += 1
            cards = f"Your total: {rng.randint(4, 21)}. Dealer shows: {rng.randint(2, 10)}."
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
            yield events.UpdateFinished(update=updates, episodes=episodes * 64, stats=STATS)
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


def trainer() -> None:
    """Send `TURNS` turns at once, then `EVENTS_PER_S` until the app ends."""
    out = sys.stdout.buffer

    def send(event: events.AnyEvent) -> None:
        out.write(wire.framed(wire.encoded(event)))
        out.flush()

    send(events.Hello(protocol=events.PROTOCOL_VERSION))
    wire.read_frame(sys.stdin.buffer)  # StartRun
    send(RUN)
    send(events.PhaseChanged(phase="rolling_out"))
    stream = mix(1)
    turns = 0
    while turns < TURNS:
        event = next(stream)
        turns += isinstance(event, events.TurnFinished)
        send(event)
    with suppress(BrokenPipeError):
        while True:
            time.sleep(1 / EVENTS_PER_S)
            send(next(stream))


# The app's part


def app(run_dir: str) -> None:
    """Run the app as it is, with the script in the trainer's place."""
    from llamagym_tui.app.app import LlamaGymApp, run_app
    from llamagym_tui.app.trainer_client import TrainerClient
    from llamagym_tui.settings import RunConfig

    client = TrainerClient((sys.executable, "-m", "benchmarks.ui_latency", "--role", "trainer"))
    config = RunConfig(agent="blackjack", run_dir=run_dir, seed=1)
    run_app(LlamaGymApp(config, client_factory=lambda: client))


# The person's part


class Terminal:
    """A program in a pseudo-terminal, and which observations it has painted.

    Leaving it as a context kills the program and its children.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        self._ours, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self._began_s = time.perf_counter()
        colours = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
        self.process = subprocess.Popen(
            command,
            stdin=its,
            stdout=its,
            stderr=its,
            env={**env, **colours},
            start_new_session=True,
        )
        os.close(its)
        self._last = b""
        self.forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._ours)

    @property
    def shown(self) -> str:
        """The last painted text, without its colours."""
        return re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b" ", self._last).decode(errors="replace")

    def forget(self) -> None:
        """Count painted observations anew."""
        self.low = 10**9
        self.high = 0

    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._began_s

    def write(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def read(self, timeout_s: float) -> bytes:
        """The bytes that are painted next; empty if none are."""
        if not select.select([self._ours], [], [], timeout_s)[0]:
            return b""
        try:
            painted = os.read(self._ours, 1 << 20)
        except OSError as error:
            raise SystemExit(f"The program ended; its terminal showed: {self.shown}") from error
        self._last = (self._last + painted)[-6000:]
        for serial in map(int, re.findall(rb"#(\d{7})#", painted)):
            self.low = min(self.low, serial)
            self.high = max(self.high, serial)
        return painted

    def watch(self, seconds: float) -> None:
        """Read what is painted for a while."""
        end = time.perf_counter() + seconds
        while (left := end - time.perf_counter()) > 0:
            self.read(left)

    def wait(self, is_there: Callable[[bytes], bool], patience_s: float = PATIENCE_S) -> None:
        """Read until a condition holds for all that was painted since the call; end the program if it never does."""
        end = time.perf_counter() + patience_s
        painted = b""
        while not is_there(painted):
            if time.perf_counter() > end:
                raise SystemExit(f"Nothing came in {patience_s:.0f} s; it showed: {self.shown}")
            painted += self.read(0.5)

    def press(self, key: bytes, effect: Callable[[bytes], bool]) -> float:
        """Seconds from a key until its effect is painted."""
        began = time.monotonic()
        self.write(key)
        self.wait(effect)
        return time.monotonic() - began

    def follow(self, key: bytes) -> None:
        """Press a key and wait until a new observation is painted."""
        self.forget()
        self.write(key)
        self.wait(lambda _: self.high > 0)


PAGE_UP = b"\x1b[5~"
END = b"\x1b[F"
ESCAPE = b"\x1b"
Times = dict[str, list[float]]


def scroll(terminal: Terminal, times: Times) -> None:
    """Three pages up from the end, and back to it."""
    terminal.watch(0.5)
    terminal.follow(END)
    for _ in range(3):
        low = terminal.low
        times["page up"].append(terminal.press(PAGE_UP, lambda _, low=low: terminal.low < low))
        terminal.watch(0.15)
    high = terminal.high
    times["end"].append(terminal.press(END, lambda _: terminal.high > high))
    terminal.watch(0.3)


def open_metrics(terminal: Terminal, times: Times) -> None:
    """Open the metrics and leave them."""
    times["m"].append(terminal.press(b"m", lambda painted: b"KL" in painted))
    terminal.watch(0.5)
    terminal.follow(ESCAPE)
    terminal.watch(0.5)


def share(terminal: Terminal, seconds: float) -> float:
    """Percent of a core that the app uses in a stretch without keys."""
    process = psutil.Process(terminal.process.pid)
    before = process.cpu_times()
    began_s = time.monotonic()
    terminal.watch(seconds)
    after = process.cpu_times()
    used_s = after.user + after.system - before.user - before.system
    return 100 * used_s / (time.monotonic() - began_s)


def line_of(name: str, seconds: list[float]) -> str:
    """Median and p95 of some times."""
    p95 = statistics.quantiles(seconds, n=20)[-1]
    median = statistics.median(seconds)
    return f"{name:<12} {len(seconds):>4} times   p50 {1000 * median:6.1f} ms   p95 {1000 * p95:6.1f} ms"


def measure() -> None:
    """Start the app, wait for its turns, press keys, then none."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "LLAMAGYM_TUI_DATA": folder, "LLAMAGYM_TUI_CONFIG": folder}
        command = [sys.executable, "-m", "benchmarks.ui_latency", "--role", "app", f"{folder}/run"]
        with Terminal(command, env) as terminal:
            terminal.wait(lambda _: terminal.high >= TURNS, START_S)
            terminal.watch(3.0)
            times: Times = defaultdict(list)
            for _ in range(ROUNDS):
                scroll(terminal, times)
                open_metrics(terminal, times)
            busy = share(terminal, QUIET_S)
    for name, pressed in times.items():
        print(line_of(name, pressed))
    print(f"processor    {busy:.1f} %")


def first_frames(runs: int) -> None:
    """Time starts of the playground and of an empty app, in turn."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as data:
        env = {**os.environ, "LLAMAGYM_TUI_DATA": data, "PYTHONPYCACHEPREFIX": f"{data}/compiled"}
        # Modules are compiled at the first start, as in an installed program.
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        subjects = {
            "empty": lambda: frame_s(["-c", EMPTY], b"first-frame", env),
            "playground": lambda: frame_s(PLAYGROUND, PAINTED, env),
        }
        times = alternate(subjects, runs)
    for name, values in times.items():
        print(f"{name:<11} {spread(values):.3f} s")
    print(f"ratio {ratios(times['playground'], times['empty']):.2f}")


def frame_s(arguments: list[str], needle: bytes, env: Mapping[str, str]) -> float:
    """Seconds from the start of Python until its terminal shows a text."""
    with Terminal([sys.executable, *arguments], env) as terminal:
        terminal.wait(lambda painted: needle in painted)
        return terminal.elapsed_s()


def main(
    run_dir: Annotated[str, typer.Argument(hidden=True)] = "",
    first_frame: Annotated[
        int, typer.Option(help="Starts that are timed instead, after one that does not count.")
    ] = 0,
    role: Annotated[str, typer.Option(hidden=True)] = "person",
) -> None:
    if role == "app":
        app(run_dir)
    elif role == "trainer":
        trainer()
    elif first_frame:
        first_frames(first_frame)
    else:
        measure()


if __name__ == "__main__":
    typer.run(main)
