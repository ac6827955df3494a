"""The versions of the system prompt and the returns under each, in bounded memory.

Episodes in training and in inference are counted apart, because the policy changes in training. The last episodes of a
version count: about the same policy played the last ones of a version and the first ones of the next.
"""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from llamagym_tui.protocol.events import EpisodesCounted, EvaluationFinished, PolicyMapped
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.settings import Mode
from llamagym_tui.state.returns import RECENT, MeanReturn, mean_return

MAX_VERSIONS = 32
"""The number of versions that are kept; the first one always stays, and the oldest ones after it go first."""
WORDS = 40
"""The number of characters by which a prompt is named."""


@dataclass(frozen=True, slots=True)
class Played:
    """The last `RECENT` returns under a version."""

    recent: tuple[float, ...] = ()
    episodes: int = 0
    """The number of all its episodes."""

    def add(self, returns: Sequence[float]) -> "Played":
        """The same with more episodes."""
        recent = (*self.recent, *returns)
        return Played(recent[-RECENT:], self.episodes + len(returns))

    @property
    def last(self) -> MeanReturn | None:
        """The mean return of its last episodes; None before the first."""
        return mean_return(self.recent)


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptVersion:
    """A system prompt, and how the policy played under it."""

    version: int
    text: str
    updates: tuple[int, int] | None = None
    """Updates of the policies that played its first and its last episode; None before the first."""
    played: Mapping[Mode, Played] = field(default_factory=dict)
    """Returns by mode."""

    def under(self, mode: Mode) -> Played:
        """Returns in a mode."""
        return self.played.get(mode, Played())


Versions = tuple[PromptVersion, ...]
"""The versions of a run's prompt in the order of their numbers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptEdit:
    """The last edit of the system prompt, with the policy maps before and after it."""

    version: int
    """Version of the prompt that came with it."""
    version_before: int
    episode: int
    """Episodes that had been played by then."""
    before: PolicyMapped | None
    """The last map before it, if there was one."""
    after: PolicyMapped | None = None
    """The first map under its prompt, as far as it is computed."""

    def mapped(self, event: PolicyMapped) -> "PromptEdit":
        """The edit after another map was computed."""
        known = 0 if self.after is None else len(self.after.shares)
        if event.prompt_version != self.version or len(event.shares) <= known:
            return self
        return replace(self, after=event)


def taken(versions: Versions, version: int, text: str) -> Versions:
    """The versions with a prompt that the trainer has taken; if it is among them already, it keeps its episodes."""
    if any(known.version == version and known.text == text for known in versions):
        return versions
    others = [known for known in versions if known.version != version]
    others.append(PromptVersion(version=version, text=text))
    first, *later = sorted(others, key=lambda known: known.version)
    return (first, *later[-(MAX_VERSIONS - 1) :])


def counted(versions: Versions, event: EpisodesCounted, update: int) -> Versions:
    """The versions with more episodes, played by the policy after an update."""
    version = event.prompt_version
    return tuple(
        _with_episodes(known, event, update) if known.version == version else known
        for known in versions
    )


def taken_back(versions: Versions, at_checkpoint: Versions) -> Versions:
    """The versions as they were counted at a checkpoint; later ones stay, without episodes."""
    counted_then = {known.version: known for known in at_checkpoint}
    found = []
    for known in versions:
        unplayed = PromptVersion(version=known.version, text=known.text)
        found.append(counted_then.get(known.version, unplayed))
    return tuple(found)


def words(text: str, other: str = "", most: int = WORDS) -> str:
    """The first words of a prompt, quoted; if it begins like `other` for long, the words from where they differ."""
    own_words = one_line(text).split()
    if not own_words:
        return "(none)"
    shared = 0
    for own, others in zip(own_words, one_line(other).split(), strict=False):
        if own != others:
            break
        shared += 1
    shown = own_words
    differs_late = len(" ".join(own_words[:shared])) > most // 2
    if differs_late and shared < len(own_words):
        shown = ["…", *own_words[shared:]]
    shortened = textwrap.shorten(" ".join(shown), most, placeholder=" …")
    return f"“{shortened.strip()}”"


def named(versions: Versions, version: int, text: str | None = None) -> str:
    """A version with the first words of its text, which is looked up unless it is given: v2 “Hit below 13.”"""
    if text is None:
        texts = {known.version: known.text for known in versions}
        text = texts.get(version)
    if text is None:
        return f"v{version}"
    first_text = versions[0].text if versions else ""
    return f"v{version} {words(text, first_text)}"


def played_by(found: EvaluationFinished, versions: Versions = (), lead: str = ", ") -> str:
    """Which policy and prompt an evaluation is of, after a lead; empty where it was played apart from a run."""
    if found.update is None or found.prompt_version is None:
        return ""
    return f"{lead}update {found.update:,}, prompt {named(versions, found.prompt_version, found.system_prompt)}"


def _with_episodes(known: PromptVersion, event: EpisodesCounted, update: int) -> PromptVersion:
    """A version with more episodes, played by the policy after an update."""
    first_update = known.updates[0] if known.updates else update
    played = {**known.played, event.mode: known.under(event.mode).add(event.returns)}
    return replace(known, updates=(first_update, update), played=played)
