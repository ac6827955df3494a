"""What a setting's field can say beside its name and default: the range of its numbers, and that it may change live."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

LARGEST = 1e30
"""Size of a number that is taken from a person: one that is much larger could not be read back from a run's log."""
LARGEST_SEED = 2**62
"""Generators take no larger ones, and an evaluation's seed is the run's and some more."""
SEED_BITS: Literal[31] = 31
"""Bits of the seeds of episodes: many environments take no larger ones."""
OLD_SEED_BITS: Literal[32] = 32
"""Those of runs from before that was so."""

Number = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
NonNegative = Annotated[float, Meta(ge=0, le=LARGEST)]
Positive = Annotated[float, Meta(gt=0, le=LARGEST)]
Fraction = Annotated[float, Meta(ge=0, le=1)]
Count = Annotated[int, Meta(ge=1, le=LARGEST_SEED)]

Value = bool | int | float | str | None
"""What a setting can be changed to."""


class Live(Struct, frozen=True, kw_only=True):
    """The permission to change a setting while the run is under way, as `Annotated` metadata on its field; and its
    words."""

    place: int
    """Where it stands in the list of such settings, the most used first; with gaps, for others to come between."""
    title: str
    meaning: str
