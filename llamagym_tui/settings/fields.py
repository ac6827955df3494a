"""Types of settings: ranges of numbers, and the words that people read."""

from typing import Annotated

from msgspec import Meta, Struct

LARGEST = 1e30
"""Size of a number that is taken from a person: one that is much larger could not be read back from a run's log."""
LARGEST_SEED = 2**62
"""Generators take no larger ones, and an evaluation's seed is the run's and some more."""

Number = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
NonNegative = Annotated[float, Meta(ge=0, le=LARGEST)]
Positive = Annotated[float, Meta(gt=0, le=LARGEST)]
Fraction = Annotated[float, Meta(ge=0, le=1)]
Count = Annotated[int, Meta(ge=1, le=LARGEST_SEED)]

Value = bool | int | float | str | None
"""A value that a setting can be changed to."""


class Option(Struct, frozen=True, kw_only=True):
    """The words of a setting, as `Annotated` metadata on its field, for command lines and the dialog of settings."""

    help: str
    """One sentence."""
    flag: str = ""
    """Its option on the command line; empty: ``--set NAME=VALUE`` alone gives it."""
    title: str = ""
    """Its name in the dialog of settings; empty: it cannot change while the run is under way."""
