"""What the benchmarks of speed share: variants that take turns, ratios with their spread, and time by section.

Variants alternate within one run, so that whatever else the machine does slows all of them down, and a ratio is formed
within each round. Imports the standard library alone: a benchmark may time the import of everything else.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class Spread(NamedTuple):
    """Median and extremes of some measurements; a format applies to each of them."""

    median: float
    low: float
    high: float

    def __format__(self, spec: str) -> str:
        return f"{self.median:{spec}} ({self.low:{spec}} to {self.high:{spec}})"


def spread(values: Sequence[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values))


def ratios(values: Sequence[float], base: Sequence[float]) -> Spread:
    """Of values over those of another variant, round by round."""
    return spread([value / other for value, other in zip(values, base, strict=True)])


def alternate(
    variants: Mapping[str, Callable[[], T]], rounds: int, *, warm_up: int = 1
) -> dict[str, list[T]]:
    """Results of each variant, called once a round; every second round has the reverse order.

    Args:
        variants: what to call, by name.
        rounds: that count.
        warm_up: rounds before them whose results are dropped.
    """
    found: dict[str, list[T]] = {name: [] for name in variants}
    for turn in range(warm_up + rounds):
        for name in list(variants)[:: -1 if turn % 2 else 1]:
            result = variants[name]()
            if turn >= warm_up:
                found[name].append(result)
    return found


class Stopwatch:
    """Time by section; what is inside another section is not counted in the outer one."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """A clock may count anything that only grows, as FLOPs do."""
        self.spent: dict[str, float] = defaultdict(float)
        self._clock = clock
        self._open = ["other"]
        self._since = clock()

    @property
    def sections(self) -> Sequence[str]:
        """Those that are open, the innermost last."""
        return self._open

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        self.lap()
        self._open.append(name)
        try:
            yield
        finally:
            self.lap()
            self._open.pop()

    def lap(self) -> None:
        """Count the time until now."""
        now = self._clock()
        self.spent[self._open[-1]] += now - self._since
        self._since = now

    @contextmanager
    def around(self, owner: Any, method: str, name: str | Callable[[], str]) -> Iterator[None]:
        """Every call of a method is a section, until the block ends."""
        wrapped = getattr(owner, method)

        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.section(name if isinstance(name, str) else name()):
                return wrapped(*args, **kwargs)

        setattr(owner, method, timed)
        try:
            yield
        finally:
            setattr(owner, method, wrapped)


def summary(
    *command: object, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The JSON line with which a command of `llamagym-tui` ends.

    Args:
        command: its words, without ``--json``.
        cwd: the checkout whose code runs; None: this one.
        env: variables; None: those of this process.
    """
    return json.loads(printed(*command, "--json", cwd=cwd, env=env).strip().splitlines()[-1])


def printed(*command: object, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """What a command of `llamagym-tui` prints on stdout; see `summary`."""
    words = [sys.executable, "-m", "llamagym_tui", *map(str, command)]
    return subprocess.run(
        words, stdout=subprocess.PIPE, text=True, check=True, cwd=cwd, env=env
    ).stdout


def children_s() -> float:
    """Processor seconds of all commands that have ended: unlike seconds, hardly changed by other work."""
    times = os.times()
    return times.children_user + times.children_system


def machine() -> str:
    """Processor, cores, system and versions, in one line."""
    try:
        lines = subprocess.run(
            ["lscpu"], stdout=subprocess.PIPE, text=True, check=True
        ).stdout.splitlines()
        facts = dict(line.split(":", 1) for line in lines if ":" in line)
        name, cores = facts["Model name"].strip(), facts["CPU(s)"].strip()
    except (OSError, subprocess.CalledProcessError, KeyError):
        name, cores = platform.processor() or platform.machine(), "?"
    versions = f"Python {platform.python_version()}, torch {metadata.version('torch')}"
    return f"{name}, {cores} cores, {platform.system()}, {versions}"
