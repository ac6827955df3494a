"""What a run uses of the machine: cores and memory of its trainer and of the app, GPUs, tokens a second; on demand.

Looks once a second, in a thread, and only while it is in view; the trainer knows nothing of it.
"""

import os
import shutil
import subprocess
import time
from typing import NamedTuple

from textual import work
from textual.content import Content

from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.screens.widgets.state_text import StateText
from llamagym_tui.state.run import RunState

LOOK_S = 1.0
"""Seconds between two looks."""
GIB = 2**30
MIB = 2**20
NVIDIA = ("--query-gpu=utilization.gpu,memory.used,memory.total", "--format=csv,noheader,nounits")


class Used(NamedTuple):
    """What a process and its children have used so far, and hold."""

    cpu_s: float
    memory: int
    """Bytes, as resident."""


class Gpu(NamedTuple):
    share: float
    """Of the time since the last look in which it computed."""
    used_mib: float
    total_mib: float


class Look(NamedTuple):
    at_s: float
    trainer: Used | None
    """None: there is no trainer."""
    app: Used
    free: int
    """Bytes of memory that are free on the machine."""
    gpus: list[Gpu]


def used_by(pid: int, *, with_children: bool) -> Used | None:
    """What a process uses; None: it has ended."""
    import psutil  # not before somebody looks

    try:
        process = psutil.Process(pid)
        family = [process]
        if with_children:
            family += process.children(recursive=True)
        times = [each.cpu_times() for each in family]
        memory = sum(each.memory_info().rss for each in family)
    except psutil.Error:  # one of them ended just now
        return None
    return Used(sum(each.user + each.system for each in times), memory)


def gpus() -> list[Gpu]:
    """NVIDIA's GPUs; none where there is no program that knows them."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    try:
        told = subprocess.run(
            [program, *NVIDIA], capture_output=True, text=True, timeout=5, check=True
        ).stdout
        rows = [[float(cell) for cell in line.split(",")] for line in told.splitlines()]
        return [Gpu(share / 100, used, total) for share, used, total in rows]
    except (OSError, ValueError, subprocess.SubprocessError):
        return []


def look(pid: int | None) -> Look:
    """What is used now, by the trainer of a process id and by this process."""
    import psutil

    trainer = None if pid is None else used_by(pid, with_children=True)
    app = used_by(os.getpid(), with_children=False) or Used(0.0, 0)
    return Look(time.monotonic(), trainer, app, psutil.virtual_memory().available, gpus())


class Resources(StateText):
    DEFAULT_CSS = "Resources { height: auto; padding: 0 1; background: $surface; }"

    def __init__(self, state: RunState) -> None:
        super().__init__(state, id="resources")
        self._looks: list[Look] = []
        """The last two."""

    def on_mount(self) -> None:
        self._look()
        self.set_interval(LOOK_S, self._look)

    @work(thread=True, exclusive=True, group="resources")
    def _look(self) -> None:
        found = look(self.state.pid)
        self.app.call_from_thread(self._seen, found)

    def _seen(self, found: Look) -> None:
        self._looks = [*self._looks[-1:], found]
        self.refresh(layout=True)

    def content_at(self, width: int) -> Content:
        if not self._looks:
            return Content.styled("looking at the machine …", ASIDE)
        before, now = self._looks[0], self._looks[-1]
        between_s = now.at_s - before.at_s
        parts = [
            f"trainer {_process(before.trainer, now.trainer, between_s)} of {_cores()} cores"
            if now.trainer
            else "no trainer",
            f"app {_process(before.app, now.app, between_s)} cores",
            f"{now.free / GIB:,.1f} GiB free",
        ]
        for gpu in now.gpus:
            held = f"{gpu.used_mib / 1024:,.1f} of {gpu.total_mib / 1024:,.1f} GiB"
            parts.append(f"GPU {gpu.share:.0%}, {held}")
        if self.state.stats is not None and self.state.stats.tokens_per_s:
            parts.append(f"{self.state.stats.tokens_per_s:,.0f} tokens/s")
        return Content(one_line(" · ".join(parts)))


def _process(before: Used | None, now: Used | None, between_s: float) -> str:
    """Memory, then the cores that were busy between two looks; one that was not there before has no cores yet."""
    assert now is not None
    known = before is not None and between_s > 0 and now.cpu_s >= before.cpu_s
    cores = f"{(now.cpu_s - before.cpu_s) / between_s:.1f}" if known and before else "…"
    return f"{now.memory / MIB:,.0f} MiB, {cores}"


def _cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
