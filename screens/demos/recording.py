"""What a person does with the demonstrations of one agent: play at a table, keep what the model played, train on them.

Everything goes through one writer, so that one file grows and one place knows what is not on disk yet. Knows neither
the screen nor the trainer.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from llamagym_tui.demos.watched_episode import EpisodeRecorder, WatchedEpisode, as_demonstration
from llamagym_tui.errors import LlamaGymError
from llamagym_tui.protocol.events import AnyEvent, EpisodeCorrected
from llamagym_tui.screens.play.policy_hint import PolicyHint
from llamagym_tui.setup.run_agent import RunAgent

if TYPE_CHECKING:
    from llamagym_tui.demos.demonstration import Demonstration
    from llamagym_tui.demos.human_game import HumanGame
    from llamagym_tui.demos.writer import DemoWriter


class Offer(NamedTuple):
    """A file of demonstrations that a warm start could train on."""

    path: Path
    title: str
    episodes: int
    mean_return: float
    fault: str
    """Why nothing would be trained on it, for people; empty: it is sound."""


class DemoDesk:
    """One agent's desk; nothing is looked up before it is needed."""

    def __init__(self, agent: RunAgent, *, clock: Callable[[], datetime], next_seed: Callable[[], int]) -> None:
        """A desk on which nothing lies.

        Args:
            agent: of the run.
            clock: time of day.
            next_seed: seeds of a person's episodes.
        """
        self._agent, self._clock, self._next_seed = agent, clock, next_seed
        self._recorder = EpisodeRecorder()
        self._kept: set[int] = set()
        """Hashes of the model's episodes that were kept: one that is told again is not kept again."""
        self._just_kept: list[Demonstration] = []
        """Those of the present second: two that are equal to the second would be one episode twice in the file."""
        self._writer: DemoWriter | None = None
        self.game: HumanGame | None = None
        """The person's table, once it was opened."""
        self.policy_hint = PolicyHint()
        """What the policy would do there."""
        self.keep_at_least: float | None = None
        """Return from which each watched episode of the model is kept; None: only by hand."""

    @property
    def writer(self) -> DemoWriter:
        """Takes whatever is recorded."""
        if self._writer is None:
            from llamagym_tui.demos.writer import DemoWriter

            self._writer = DemoWriter(self._agent.demos_path())
        return self._writer

    @property
    def waiting(self) -> int:
        """Episodes that are not on disk."""
        return self._writer.saved.waiting if self._writer is not None else 0

    def table(self, system_prompt: Callable[[], str]) -> HumanGame:
        """The person's table, which stays as it was left.

        Raises:
            LlamaGymError: the agent cannot be made.
        """
        if self.game is None:
            self.game = self._agent.table(
                self.writer, system_prompt=system_prompt, next_seed=self._next_seed, clock=self._clock
            )
        return self.game

    @property
    def keepable(self) -> WatchedEpisode | None:
        """The watched episode that ended last, unless it was kept; corrections keep themselves."""
        last = self._recorder.last
        return None if last is None or last.replaced or last.identity in self._kept else last

    def hear(self, event: AnyEvent, model: str) -> bool:
        """Take in what the trainer tells; whether an episode was kept, by rule or as a correction, and is to be saved.

        Raises:
            LlamaGymError: a correction cannot be kept, as the agent cannot be made.
        """
        if isinstance(event, EpisodeCorrected):
            self._add(WatchedEpisode.corrected(event), model)
            return True
        if not self._recorder.add(event) or self.keep_at_least is None:
            return False
        last = self.keepable
        if last is None or last.episode_return < self.keep_at_least:
            return False
        try:
            self.keep(model)
        except LlamaGymError:
            return False  # a reply names no action: nobody asked for this very episode
        return True

    def keep(self, model: str) -> WatchedEpisode:
        """Let the watched episode that ended last wait to be saved, once.

        Args:
            model: that played it.
        Raises:
            LlamaGymError: a reply names no action, or the agent cannot be made.
        """
        watched = self.keepable
        assert watched is not None, "the key is grey then"
        self._add(watched, model)
        return watched

    def _add(self, watched: WatchedEpisode, model: str) -> None:
        demo = as_demonstration(watched, self._agent.agent, self._agent.name, model=model, clock=self._clock)
        self._just_kept = [other for other in self._just_kept if other.recorded_at == demo.recorded_at]
        if demo not in self._just_kept:
            self._just_kept.append(demo)
            self.writer.add(demo)
        self._kept.add(watched.identity)

    def offers(self) -> list[Offer]:
        """The files that a warm start could train on, checked whole; may take a moment.

        Raises:
            LlamaGymError: the agent cannot be made.
        """
        from llamagym_tui.demos.training_data import shipped, training_data

        agent = self._agent.agent
        places = [(self._agent.demos_path(), "recorded by you"), (shipped(agent), "shipped with the agent")]
        offers = []
        for path, title in places:
            if path is None or not path.is_file():
                continue
            try:
                demos = training_data(agent, path).demonstrations
            except LlamaGymError as error:
                offers.append(Offer(path, title, 0, 0.0, str(error)))
            else:
                mean = sum(demo.episode_return for demo in demos) / len(demos)
                offers.append(Offer(path, title, len(demos), mean, ""))
        return offers

    def close(self) -> None:
        """Close the table; what waits is written, if it can be."""
        if self.waiting:
            self.writer.save()
        if self.game is not None:
            self.game.close()
