"""The versions of the system prompt and the returns under each, to compare prompts, in bounded memory.

The policy changes in training, so episodes there and in inference are counted apart, and of each the first and the last
ones: what a version played at the end and the next one at its beginning, they played by about the same policy.
"""

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from llamagym_tui.config import Mode
from llamagym_tui.protocol.events import EpisodesCounted, EvaluationFinished
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.returns import RECENT, MeanReturn, mean_return, standard_error

MAX_VERSIONS = 32
"""Versions kept; the oldest but the first go first."""
WORDS = 40
"""Characters of a prompt that stand for it."""


@dataclass(frozen=True, slots=True)
class Totals:
    episodes: int = 0
    total: float = 0.0
    squares: float = 0.0

    def add(self, returns: Sequence[float]) -> "Totals":
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


@dataclass(frozen=True, slots=True)
class Ends:
    """How a version played at its beginning, and last: `RECENT` episodes each, which may overlap."""

    first: Totals = Totals()
    recent: tuple[float, ...] = ()
    episodes: int = 0

    def add(self, returns: Sequence[float]) -> "Ends":
        first = self.first.add(returns[: max(0, RECENT - self.episodes)])
        return Ends(first, (*self.recent, *returns)[-RECENT:], self.episodes + len(returns))

    @property
    def last(self) -> MeanReturn | None:
        return mean_return(self.recent)


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptVersion:
    version: int
    text: str
    updates: tuple[int, int] | None = None
    """Of the policies that played its first and its last episodes. None: none was played."""
    train: Ends = Ends()
    inference: Ends = Ends()

    def under(self, mode: Mode) -> Ends:
        return self.train if mode == "train" else self.inference


Versions = tuple[PromptVersion, ...]
"""In order of their numbers."""


def taken(versions: Versions, version: int, text: str) -> Versions:
    """With a prompt that the trainer took; one that is there already keeps its episodes."""
    if any(known.version == version and known.text == text for known in versions):
        return versions
    others = [known for known in versions if known.version != version]
    first, *rest = sorted(
        [*others, PromptVersion(version=version, text=text)], key=lambda known: known.version
    )
    return (first, *rest[1 - MAX_VERSIONS :])


def counted(versions: Versions, event: EpisodesCounted, update: int) -> Versions:
    """With more episodes, by the policy after an update."""
    version = event.prompt_version
    return tuple(
        _with_episodes(known, event, update) if known.version == version else known
        for known in versions
    )


def taken_back(versions: Versions, saved: Versions) -> Versions:
    """As they were counted at a checkpoint; a prompt that was taken since is kept, with nothing played under it."""
    then = {known.version: known for known in saved}
    return tuple(
        then.get(now.version, PromptVersion(version=now.version, text=now.text)) for now in versions
    )


def words(text: str, other: str = "", most: int = WORDS) -> str:
    """The first words of a prompt, quoted; of one that begins as `other` does for long, those where they part."""
    mine, theirs = one_line(text).split(), one_line(other).split()
    shared = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(mine, theirs, strict=False))))
    parts = shared < len(mine) and len(" ".join(mine[:shared])) > most // 2
    shown = textwrap.shorten(
        " ".join(["…", *mine[shared:]] if parts else mine), most, placeholder=" …"
    )
    return f"“{shown.strip()}”" if mine else "(none)"


def named(versions: Versions, version: int, text: str | None = None) -> str:
    """A version with the first words of its text, which is looked up unless it is given: v2 “Hit below 13.”"""
    texts = {known.version: known.text for known in versions}
    if (text := texts.get(version) if text is None else text) is None:
        return f"v{version}"
    return f"v{version} {words(text, versions[0].text if versions else '')}"


def played_by(found: EvaluationFinished, versions: Versions = (), lead: str = ", ") -> str:
    """Which policy and prompt an evaluation is of, after a lead; empty where it was played apart from a run."""
    if found.update is None or found.prompt_version is None:
        return ""
    return f"{lead}update {found.update:,}, prompt {named(versions, found.prompt_version, found.system_prompt)}"


def _with_episodes(known: PromptVersion, event: EpisodesCounted, update: int) -> PromptVersion:
    ends: dict[str, Any] = {event.mode: known.under(event.mode).add(event.returns)}
    return replace(known, updates=(known.updates[0] if known.updates else update, update), **ends)
