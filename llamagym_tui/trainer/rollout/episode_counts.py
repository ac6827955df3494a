"""Counting what was played: episodes ended since the last telling, their rate, and the run's recent mean return.

Also the stopwatch that counts playing and training, but neither loading nor pauses nor evaluations. Both are given
their clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from llamagym_tui.config import Mode
from llamagym_tui.protocol.events import EpisodesCounted
from llamagym_tui.returns import MeanReturn, mean_return

if TYPE_CHECKING:
    from llamagym_tui.trainer.rollout.environments import EndedEpisode

TELL_EVERY_S = 0.2
"""Seconds between two tellings at least: five a second at most."""
RATE_WINDOW_S = 10.0
"""Seconds over which the rate of episodes is measured."""
RECENT = 1000
"""Training episodes behind the run's mean return."""


class Kind(NamedTuple):
    """What episodes must have in common to be told in one event."""

    mode: Mode
    prompt_version: int
    policy_version: int


class Stopwatch:
    """Seconds during which it ran."""

    def __init__(self, clock: Callable[[], float], elapsed_s: float = 0.0) -> None:
        """A stopwatch that stands still, at `elapsed_s`."""
        self._clock = clock
        self._before_s = elapsed_s
        self._since: float | None = None

    @property
    def elapsed_s(self) -> float:
        """Seconds in all."""
        return self._before_s + (self._clock() - self._since if self._since is not None else 0.0)

    def run(self, runs: bool) -> None:
        """Let it run, or stand still."""
        self._before_s, self._since = self.elapsed_s, self._clock() if runs else None


class EpisodeTally:
    """Ended episodes of a session, told in groups that have mode, prompt and policy in common."""

    def __init__(
        self, stopwatch: Stopwatch, clock: Callable[[], float], episodes: int = 0, recent: Sequence[float] = ()
    ) -> None:
        """A tally with nothing to tell.

        Args:
            stopwatch: of playing and training; the rate is measured by it.
            clock: seconds, monotonic; tellings are spaced by it.
            episodes: episodes that the run had before.
            recent: returns of the last training episodes before.
        """
        self.told = episodes
        """Episodes of the run that were told."""
        self._stopwatch = stopwatch
        self._clock = clock
        self._told_at = float("-inf")
        self._waiting: dict[Kind, list[EndedEpisode]] = {}
        self._recent = deque(recent, maxlen=RECENT)
        self._marks = deque([(stopwatch.elapsed_s, episodes)])

    def add(self, ended: Iterable[EndedEpisode]) -> None:
        """Count episodes that have ended."""
        for episode in ended:
            kind = Kind(episode.mode, episode.prompt_version, episode.policy_version)
            self._waiting.setdefault(kind, []).append(episode)
            if episode.mode == "train" and not episode.is_corrected:
                self._recent.append(episode.episode_return)

    @property
    def is_due(self) -> bool:
        """Whether there is something to tell, and the last telling is long enough ago."""
        return bool(self._waiting) and self._clock() - self._told_at >= TELL_EVERY_S

    @property
    def recent_returns(self) -> list[float]:
        """Returns of the last training episodes, in order."""
        return list(self._recent)

    @property
    def recent_mean(self) -> MeanReturn:
        """Mean return of the last training episodes; 0 without any."""
        return mean_return(self._recent) or MeanReturn(0.0, 0.0, 0)

    def tell(self, env_steps: int) -> list[EpisodesCounted]:
        """Everything that was not told yet, one event a kind; nothing if there is nothing.

        Args:
            env_steps: environment steps since the run began.
        """
        waiting, self._waiting = self._waiting, {}
        if not waiting:
            return []
        self._told_at = self._clock()
        rate = self._rate(self.told + sum(map(len, waiting.values())))
        return [self._event(kind, episodes, env_steps, rate) for kind, episodes in waiting.items()]

    def _event(self, kind: Kind, episodes: list[EndedEpisode], env_steps: int, rate: float) -> EpisodesCounted:
        self.told += len(episodes)
        own = [episode for episode in episodes if not episode.is_corrected]
        return EpisodesCounted(
            returns=[episode.episode_return for episode in own],
            lengths=[episode.length for episode in own],
            parse_failures=sum(episode.parse_failures for episode in own),
            actions=[sum(counts) for counts in zip(*(episode.actions for episode in own), strict=True)],
            mode=kind.mode,
            prompt_version=kind.prompt_version,
            policy_version=kind.policy_version,
            episodes=self.told,
            corrected=len(episodes) - len(own),
            env_steps=env_steps,
            episodes_per_s=rate,
        )

    def _rate(self, episodes: int) -> float:
        """Episodes per second since about `RATE_WINDOW_S` ago, or since the session began."""
        now_s = self._stopwatch.elapsed_s
        while len(self._marks) > 1 and self._marks[1][0] <= now_s - RATE_WINDOW_S:
            self._marks.popleft()
        since_s, before = self._marks[0]
        self._marks.append((now_s, episodes))
        return (episodes - before) / (now_s - since_s) if now_s > since_s else 0.0
