"""The figures of a run's updates in bounded memory, for the charts of the metrics screen.

If a run is long, only every second, fourth, … update is kept, and always the last one. Nothing here draws.
"""

from dataclasses import dataclass
from typing import NamedTuple

from llamagym_tui.protocol.events import UpdateFinished, UpdateStats

MAX_SAMPLES = 256
"""Most updates that are kept; an even number, so that the last one stays when one more makes half of them go."""


class Sample(NamedTuple):
    """An update and its figures."""

    episodes: int
    """The number of episodes since the run began."""
    update: int
    stats: UpdateStats

    @property
    def place(self) -> tuple[int, int]:
        """Where the update stands in the run; this only grows."""
        return self.episodes, self.update


@dataclass(frozen=True, slots=True)
class UpdateSeries:
    """The updates that are kept."""

    samples: tuple[Sample, ...] = ()
    """The kept updates, in order."""
    every: int = 1
    """1: every update is kept; 2: every second one, and so on. The last one is kept in any case."""
    seen: int = 0
    """The number of updates that were added."""

    def add(self, event: UpdateFinished) -> "UpdateSeries":
        """The series with another update at its end; updates that a resumed run makes again are replaced."""
        new = Sample(event.episodes, event.update, event.stats)
        before = self.samples
        if before and before[-1].place >= new.place:  # a resumed run
            before = tuple(sample for sample in before if sample.place < new.place)
        elif before and (self.seen - 1) % self.every:  # the last one was only kept as the last one
            before = before[:-1]
        samples = (*before, new)
        every = self.every
        if len(samples) > MAX_SAMPLES:
            samples = samples[::2]
            every *= 2
        return UpdateSeries(samples, every, self.seen + 1)

    def until(self, episode: int) -> "UpdateSeries":
        """The series without the updates after an episode."""
        kept = tuple(sample for sample in self.samples if sample.episodes <= episode)
        if len(kept) == len(self.samples):
            return self
        return UpdateSeries(kept, self.every, self.seen)

    def values(self, field: str) -> list[tuple[int, float]]:
        """A figure of each update, with the number of episodes by then."""
        return [(sample.episodes, float(getattr(sample.stats, field))) for sample in self.samples]
