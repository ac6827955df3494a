"""Shared by the benchmarks: variants that take turns, ratios with their spread, and commands of `llamagym-tui`.

Variants alternate within one run, so that other work on the machine slows all of them down. A ratio is formed within
each round.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
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
    """Values over those of another variant, round by round."""
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
        order = list(variants)
        if turn % 2:
            order.reverse()
        for name in order:
            result = variants[name]()
            if turn >= warm_up:
                found[name].append(result)
    return found


def summary(*command: object) -> dict[str, Any]:
    """The JSON line with which a command of `llamagym-tui` ends; the words come without ``--json``."""
    words = [sys.executable, "-m", "llamagym_tui", *map(str, command), "--json"]
    ended = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(ended.stdout.strip().splitlines()[-1])


def evaluated(agent: str, model: Path, episodes: int, seed: int) -> dict[str, dict[str, Any]]:
    """Summaries of greedy and of sampled play, on one thread."""
    words = ("--model", model, "--episodes", episodes, "--seed", seed, "--threads", 1)
    return {way: summary("eval", agent, *words, f"--{way}") for way in ("greedy", "sampled")}


def updates_of(run_dir: Path) -> list[dict[str, Any]]:
    """A run's `UpdateFinished` events, in order."""
    lines = (run_dir / "events.jsonl").read_text(encoding="utf-8").splitlines()
    events = [json.loads(line) for line in lines]
    return [event for event in events if event["type"] == "UpdateFinished"]


def children_s() -> float:
    """Processor seconds of all commands that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def machine() -> str:
    """Processor, cores, system and versions, in one line."""
    versions = f"Python {platform.python_version()}, torch {metadata.version('torch')}"
    return f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, {platform.system()}, {versions}"
