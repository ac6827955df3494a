"""The watched episodes of the model, collected from events, so that a finished one can be kept as a demonstration.

Holds the episode under way and the one that ended last, with their whole texts. An episode of which an event was
missed is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from msgspec import UNSET

from llamagym_tui.demos.demonstration import Demonstration
from llamagym_tui.errors import ActionParseError
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.chat import assistant, opening, user
from llamagym_tui.protocol.events import (
    AnyEvent,
    EpisodeCorrected,
    EpisodeFinished,
    EpisodeStarted,
    ObservationShown,
    TurnFinished,
)


@dataclass(slots=True)
class WatchedEpisode:
    """An episode as the trainer streamed it."""

    episode: int
    """Index from 0 since the run began."""
    system_prompt: str
    observations: list[str] = field(default_factory=list)
    replies: list[str] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    actions: list[object] = field(default_factory=list)
    """What the environment got."""
    replaced: dict[int, str] = field(default_factory=dict)
    """The model's own replies in the turns in which a person acted."""
    finished: EpisodeFinished | None = None

    @classmethod
    def corrected(cls, event: EpisodeCorrected) -> WatchedEpisode:
        episode = cls(event.started.episode, event.started.system_prompt, list(event.observations))
        for turn in event.turns:
            episode.add(turn)
        episode.finished = event.finished
        return episode

    def add(self, turn: TurnFinished) -> None:
        if turn.replaced is not None:
            self.replaced[len(self.replies)] = turn.replaced
        self.replies.append(turn.reply)
        self.rewards.append(turn.reward)
        self.actions.append(turn.action)

    @property
    def identity(self) -> int:
        """A hash of number and texts: a resumed run gives some episode numbers twice."""
        return hash((self.episode, *self.observations, *self.replies, *self.rewards))

    @property
    def episode_return(self) -> float:
        return sum(self.rewards)


class EpisodeRecorder:
    def __init__(self) -> None:
        self._under_way: WatchedEpisode | None = None
        self.last: WatchedEpisode | None = None
        """The episode that ended last; None before the first one."""

    def add(self, event: AnyEvent) -> bool:
        """Take in an event; returns whether it ended an episode of which none is missing."""
        match event:
            case EpisodeStarted():
                self._under_way = WatchedEpisode(event.episode, event.system_prompt)
            case ObservationShown() | TurnFinished() | EpisodeFinished():
                return self._continue(event)
        return False

    def _continue(self, event: ObservationShown | TurnFinished | EpisodeFinished) -> bool:
        episode = self._under_way
        if episode is None or event.episode != episode.episode:
            return False
        match event:
            case ObservationShown() if event.turn == len(episode.observations):
                episode.observations.append(event.text)
            case TurnFinished() if event.turn == len(episode.replies) == len(episode.observations) - 1:
                episode.add(event)
            case EpisodeFinished() if event.length == len(episode.replies) == len(episode.observations):
                episode.finished = event
                self._under_way, self.last = None, episode
                return True
            case _:
                self._under_way = None  # something was missed
        return False


def as_demonstration(
    watched: WatchedEpisode, agent: AgentBase, agent_name: str, *, model: str, clock: Callable[[], datetime]
) -> Demonstration:
    """A finished episode of the model as data to train on; a correction, if a person acted in some turns.

    Raises:
        ActionParseError: a reply names no action, which is not worth imitating. In a correction the model's own
            replies may be of that kind, as they are not trained on.
    """
    assert watched.finished is not None, "only a finished episode is kept"
    actions = []
    for turn, (reply, got) in enumerate(zip(watched.replies, watched.actions, strict=True), start=1):
        reading = agent.read(reply)
        if reading.failed and watched.replaced:
            actions.append(got)
            continue
        if reading.failed:
            raise ActionParseError(
                f"Episode {watched.episode:,} was not kept: the reply of turn {turn} names no action, and would teach "
                "that."
            )
        actions.append(reading.action)
    messages = opening(watched.system_prompt)
    for observation, reply in zip(watched.observations, watched.replies, strict=True):
        messages += [user(observation), assistant(reply)]
    return Demonstration.of(
        agent,
        agent_name,
        messages=messages,
        actions=actions,
        rewards=watched.rewards,
        end=watched.finished.end,
        source="correction" if watched.replaced else "model",
        recorded_at=clock(),
        model=model,
        replaced_replies=watched.replaced or UNSET,
    )
