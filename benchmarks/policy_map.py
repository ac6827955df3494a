"""What the policy map costs a run that trains: processor time of asking about its states, as a share of all.

A whole session trains twice, once with nobody looking at the map and once with somebody; loading is left out. Its
clock is the processor time of this process, so that other work on the machine changes nothing.

    python -m benchmarks.policy_map --agent blackjack --seconds 60
"""

from __future__ import annotations

import argparse
import queue
import tempfile
import time
from typing import Any

from benchmarks.bare_run import settings
from llamagym_tui.protocol.commands import AnyCommand, WatchPolicyMap
from llamagym_tui.protocol.events import Event, PolicyMapLaidOut, PolicyMapped, UpdateFinished
from llamagym_tui.run_store import RunStore
from llamagym_tui.trainer.probes.policy_map import PolicyMapper
from llamagym_tui.trainer.session import Session


class Stopwatch:
    """Processor seconds of maps, one by one."""

    def __init__(self) -> None:
        self.maps_s: list[float] = []
        self._ask = PolicyMapper._shares

    def __enter__(self) -> Stopwatch:
        def timed(mapping: PolicyMapper, *arguments: Any) -> Any:
            began = time.process_time()
            try:
                return self._ask(mapping, *arguments)
            finally:
                self.maps_s.append(time.process_time() - began)

        PolicyMapper._shares = timed  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        PolicyMapper._shares = self._ask  # type: ignore[method-assign]


def measure(agent: str, seconds: float, *, watched: bool) -> str:
    """One session; a line about it."""
    asked: queue.SimpleQueue[AnyCommand] = queue.SimpleQueue()
    if watched:
        asked.put(WatchPolicyMap(on=True))
    counts: dict[type[Event], int] = {}
    began_s = 0.0

    def hear(event: Event) -> None:
        nonlocal began_s
        counts[type(event)] = counts.get(type(event), 0) + 1
        if isinstance(event, PolicyMapLaidOut):
            began_s = time.process_time()

    with tempfile.TemporaryDirectory() as folder, Stopwatch() as stopwatch:
        config = settings(agent, [f"run_dir={folder}/run", f"minutes={seconds / 60}", "threads=1"])
        Session(config, RunStore.create(config), asked, sinks=[hear], clock=time.process_time).run()
    all_s, maps_s = time.process_time() - began_s, sum(stopwatch.maps_s)
    rest = sorted(stopwatch.maps_s[1:])
    return (
        f"{'watched' if watched else 'nobody looks':<13} {maps_s:6.2f} of {all_s:6.1f} s, {maps_s / all_s:6.2%}; "
        f"{counts.get(PolicyMapped, 0)} maps, {counts.get(UpdateFinished, 0)} updates; "
        f"first {stopwatch.maps_s[0]:.3f} s, median {rest[len(rest) // 2] if rest else float('nan'):.3f} s"
    )


def main() -> None:
    """Print both lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--agent", default="blackjack")
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    for watched in (False, True):
        print(measure(options.agent, options.seconds, watched=watched), flush=True)


if __name__ == "__main__":
    main()
