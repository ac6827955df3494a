"""Counts what was played: episodes ended since the last report, and their rate.

Also the stopwatch that counts playing and training, but neither loading nor warm starts, pauses, evaluations.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from llamagym_tui.protocol.events import EpisodesCounted, EvaluationFinished
from llamagym_tui.settings import Mode
from llamagym_tui.state.returns import mean_return

REPORT_EVERY_S = 0.2
"""Seconds between two reports at least: five a second at most."""
RATE_WINDOW_S = 10.0
"""Seconds over which the rate of episodes is measured."""


@dataclass(slots=True)
class EpisodeCounts:
    """The counts of an episode, so far or to its end."""

    episode_return: float = 0.0
    length: int = 0
    """Turns."""
    parse_failures: int = 0
    """Turns whose reply named no action."""
    refusals: int = 0
    """Turns whose reply named an action that the environment refused."""
    mode: Mode = "train"
    prompt_version: int = 0
    is_corrected: bool = False
    """A person acted in it."""
    is_truncated: bool = False
    """A limit cut it off: the environment's, `max_turns`, or the model's context."""
    number: int = 0
    """Index from 0 since the run began, from which its environment's seed follows."""


def evaluated(
    ended: Sequence[EpisodeCounts], *, greedy: bool, elapsed_s: float, dropped: int = 0
) -> EvaluationFinished:
    """The figures of an evaluation by its episodes; of which policy and prompt, the caller adds."""
    mean = mean_return([each.episode_return for each in ended])
    turns = sum(each.length for each in ended)
    return EvaluationFinished(
        episodes=len(ended),
        mean_return=mean.mean if mean else 0.0,
        return_stderr=mean.stderr if mean else 0.0,
        parse_failure_rate=sum(each.parse_failures for each in ended) / max(turns, 1),
        refusal_rate=sum(each.refusals for each in ended) / max(turns, 1),
        truncated=sum(each.is_truncated for each in ended),
        greedy=greedy,
        elapsed_s=elapsed_s,
        dropped=dropped,
    )


Kind = tuple[Mode, int]
"""Mode and version of the prompt: what episodes must have in common to be counted in one event."""


class Stopwatch:
    """Seconds during which it ran; stopped at first."""

    def __init__(self, clock: Callable[[], float], elapsed_s: float = 0.0) -> None:
        self._clock = clock
        self._before_s = elapsed_s
        self._since: float | None = None

    @property
    def elapsed_s(self) -> float:
        return self._before_s + (self._clock() - self._since if self._since is not None else 0.0)

    def run(self, runs: bool) -> None:
        self._before_s = self.elapsed_s
        self._since = self._clock() if runs else None


class EpisodeCounter:
    """Ended episodes of a session, in groups that have mode and prompt in common."""

    def __init__(
        self,
        stopwatch: Stopwatch,
        clock: Callable[[], float],
        episodes: int = 0,
    ) -> None:
        """A counter that goes on from `episodes`.

        The rate is measured by the stopwatch of playing and training, reports are spaced by the clock.
        """
        self._reported = episodes
        self._stopwatch = stopwatch
        self._clock = clock
        self._reported_at = float("-inf")
        self._waiting: dict[Kind, list[EpisodeCounts]] = {}
        self._marks = deque([(stopwatch.elapsed_s, episodes)])

    def add(self, ended: Iterable[EpisodeCounts]) -> None:
        for episode in ended:
            kind = (episode.mode, episode.prompt_version)
            self._waiting.setdefault(kind, []).append(episode)

    @property
    def is_due(self) -> bool:
        return bool(self._waiting) and self._clock() - self._reported_at >= REPORT_EVERY_S

    def take_events(self, env_steps: int, dropped: int = 0) -> list[EpisodesCounted]:
        """Everything that was not reported yet, one event a kind, with the run's steps and dropped episodes."""
        waiting = self._waiting
        self._waiting = {}
        if not waiting:
            return []
        self._reported_at = self._clock()
        rate = self._rate(self._reported + sum(map(len, waiting.values())))
        return [
            self._event(kind, episodes, env_steps, dropped, rate)
            for kind, episodes in waiting.items()
        ]

    def _event(
        self, kind: Kind, episodes: list[EpisodeCounts], env_steps: int, dropped: int, rate: float
    ) -> EpisodesCounted:
        self._reported += len(episodes)
        own = [episode for episode in episodes if not episode.is_corrected]
        mode, prompt_version = kind
        return EpisodesCounted(
            returns=[episode.episode_return for episode in own],
            lengths=[episode.length for episode in own],
            mode=mode,
            prompt_version=prompt_version,
            episodes=self._reported,
            env_steps=env_steps,
            dropped=dropped,
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
