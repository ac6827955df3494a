"""The versions of the system prompt and the returns under each, to compare prompts, in bounded memory.

Episodes in training and in inference are counted apart, because the policy changes in training: only versions that
were played in inference, or over the same updates, can be compared by their means.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from llamagym_tui.config import Mode
from llamagym_tui.protocol.events import EpisodesCounted
from llamagym_tui.returns import MeanReturn, standard_error

MAX_VERSIONS = 32
"""Versions kept; the oldest go first."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over episode returns."""

    episodes: int = 0
    total: float = 0.0
    squares: float = 0.0

    def add(self, returns: Sequence[float]) -> Totals:
        """With more episodes; returns that are not finite are left out."""
        finite = [value for value in returns if math.isfinite(value)]
        return Totals(
            self.episodes + len(finite),
            self.total + math.fsum(finite),
            self.squares + math.fsum(value * value for value in finite),
        )

    @property
    def mean_return(self) -> MeanReturn | None:
        if not self.episodes:
            return None
        mean = self.total / self.episodes
        spread = self.squares - self.episodes * mean * mean
        return MeanReturn(mean, standard_error(spread, self.episodes), self.episodes)


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptVersion:
    version: int
    text: str
    train: Totals = Totals()
    inference: Totals = Totals()

    def under(self, mode: Mode) -> Totals:
        return self.train if mode == "train" else self.inference


Versions = tuple[PromptVersion, ...]
"""In order of their numbers."""


def taken(versions: Versions, version: int, text: str) -> Versions:
    """With a prompt that the trainer took; one that is there already keeps its episodes."""
    if any(known.version == version and known.text == text for known in versions):
        return versions
    others = [known for known in versions if known.version != version]
    return tuple(sorted([*others, PromptVersion(version=version, text=text)], key=lambda known: known.version))[
        -MAX_VERSIONS:
    ]


def counted(versions: Versions, event: EpisodesCounted) -> Versions:
    return tuple(_with_episodes(known, event) if known.version == event.prompt_version else known for known in versions)


def taken_back(versions: Versions, saved: Versions) -> Versions:
    """As they were counted at a checkpoint; a prompt that was taken since is kept, with nothing played under it."""
    then = {known.version: known for known in saved}
    return tuple(then.get(now.version, PromptVersion(version=now.version, text=now.text)) for now in versions)


def _with_episodes(known: PromptVersion, event: EpisodesCounted) -> PromptVersion:
    totals: dict[str, Any] = {event.mode: known.under(event.mode).add(event.returns)}
    return replace(known, **totals)
