"""Events on their way out: stamped here and nowhere else, then given to every sink in turn.

A sink that cannot take events any more (a full disk, a pipe without a reader) is dropped, told once to the others,
and ends nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import msgspec

from llamagym_tui.protocol.events import Event, WarningRaised

PROGRESS_EVERY_S = 0.5
"""Seconds between two tellings of how far something long is."""

Sink = Callable[[Event], None]
log = logging.getLogger(__name__)


class Announcer:
    """Tells events to sinks, in the thread of whoever calls."""

    def __init__(self, sinks: Sequence[Sink], clock: Callable[[], float]) -> None:
        """An announcer whose time begins now.

        Args:
            sinks: take every event, in order; one that raises ``OSError`` is dropped.
            clock: seconds, monotonic.
        """
        self._sinks = list(sinks)
        self._clock = clock
        self._began_at = clock()

    def tell(self, event: Event) -> None:
        """Stamp an event and give it to every sink."""
        stamped = msgspec.structs.replace(event, at_s=self._clock() - self._began_at)
        for sink in list(self._sinks):
            try:
                sink(stamped)
            except OSError as error:
                self._drop(sink, error)

    def _drop(self, sink: Sink, error: OSError) -> None:
        log.error("events are no longer taken by %r", sink, exc_info=error)
        self._sinks.remove(sink)
        self.tell(WarningRaised(message=f"Some events can no longer be written ({error}); the run goes on."))


def spaced(tell: Sink, clock: Callable[[], float], every_s: float = PROGRESS_EVERY_S) -> Sink:
    """The same teller, which leaves out what comes less than `every_s` after what it told, or after now."""
    told_at = clock()

    def tell_spaced(event: Event) -> None:
        nonlocal told_at
        if clock() - told_at >= every_s:
            told_at = clock()
            tell(event)

    return tell_spaced
