"""The figures of a run's updates in bounded memory: what the charts of the metrics screen draw.

Of a long run every second, fourth, … update is kept, and always the last one. Nothing here draws.
"""

from dataclasses import dataclass
from typing import NamedTuple

from llamagym_tui.protocol.events import UpdateFinished, UpdateStats

MAX_SAMPLES = 256
"""Updates kept, an even number: one more halves them, and the last one stays."""


class Sample(NamedTuple):
    episodes: int
    """Episodes since the run began."""
    update: int
    stats: UpdateStats


@dataclass(frozen=True, slots=True)
class UpdateSeries:
    samples: tuple[Sample, ...] = ()
    every: int = 1
    """Each how manieth update is kept; the last one may be another."""
    seen: int = 0
    """Updates behind the series."""

    def add(self, event: UpdateFinished) -> "UpdateSeries":
        """The series with another update at its end; updates that a resumed run makes again are replaced."""
        before, place = self.samples, (event.episodes, event.update)
        if before and before[-1][:2] >= place:
            before = tuple(sample for sample in before if sample[:2] < place)
        elif before and (self.seen - 1) % self.every:
            before = before[:-1]
        samples, every = (*before, Sample(event.episodes, event.update, event.stats)), self.every
        if len(samples) > MAX_SAMPLES:
            samples, every = samples[::2], 2 * every
        return UpdateSeries(samples, every, self.seen + 1)

    def until(self, episode: int) -> "UpdateSeries":
        kept = tuple(sample for sample in self.samples if sample.episodes <= episode)
        return UpdateSeries(kept, self.every, self.seen) if len(kept) < len(self.samples) else self

    def values(self, field: str) -> list[tuple[int, float]]:
        return [(sample.episodes, float(getattr(sample.stats, field))) for sample in self.samples]
