"""The watched episodes of the model, put together from events, so that a finished one can be kept as a demonstration.

Holds the episode under way and the one that ended last, whole texts included; an episode whose beginning was not
heard is never finished here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from msgspec import UNSET

from llamagym_tui.demos.demonstration import Demonstration, utc_timestamp
from llamagym_tui.errors import ActionParseError
from llamagym_tui.game.agent_base import AgentBase, prompt_sha256
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
    """An episode as it was told."""

    episode: int
    """Index from 0 since the run began."""
    system_prompt: str
    observations: list[str] = field(default_factory=list)
    replies: list[str] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    actions: list[object] = field(default_factory=list)
    """What the environment got."""
    replaced: dict[int, str] = field(default_factory=dict)
    """What the model would have said in the turns in which a person acted."""
    finished: EpisodeFinished | None = None

    @classmethod
    def corrected(cls, event: EpisodeCorrected) -> WatchedEpisode:
        """An episode in which a person acted."""
        episode = cls(event.started.episode, event.started.system_prompt, list(event.observations))
        for turn in event.turns:
            episode.add(turn)
        episode.finished = event.finished
        return episode

    def add(self, turn: TurnFinished) -> None:
        """Take in another turn."""
        if turn.replaced is not None:
            self.replaced[len(self.replies)] = turn.replaced
        self.replies.append(turn.reply)
        self.rewards.append(turn.reward)
        self.actions.append(turn.action)

    @property
    def identity(self) -> int:
        """A hash of which episode it is and of what was said in it; a resumed run counts some numbers twice."""
        return hash((self.episode, *self.observations, *self.replies, *self.rewards))

    @property
    def episode_return(self) -> float:
        """Sum of rewards so far."""
        return sum(self.rewards)


class EpisodeRecorder:
    """Listens to the events of a run."""

    def __init__(self) -> None:
        """A recorder that has heard nothing."""
        self._under_way: WatchedEpisode | None = None
        self.last: WatchedEpisode | None = None
        """The episode that ended last; None before the first one."""

    def hear(self, event: AnyEvent) -> bool:
        """Take in an event; whether it ended an episode that was heard from its beginning."""
        match event:
            case EpisodeStarted():
                self._under_way = WatchedEpisode(event.episode, event.system_prompt)
            case ObservationShown() | TurnFinished() | EpisodeFinished():
                return self._told(event)
        return False

    def _told(self, event: ObservationShown | TurnFinished | EpisodeFinished) -> bool:
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

    Args:
        watched: which episode.
        agent: reads the replies.
        agent_name: its short name.
        model: that said it.
        clock: the time of day.
    Raises:
        ActionParseError: a reply names no action; such an episode teaches nothing but the fault. In a correction
            the model's own replies may be of that kind, as they are not trained on.
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
    return Demonstration(
        messages=messages,
        agent=agent_name,
        env_id=agent.env_id,
        env_kwargs=dict(agent.env_kwargs),
        seed=None,
        actions=actions,
        rewards=list(watched.rewards),
        episode_return=watched.episode_return,
        length=len(watched.replies),
        end=watched.finished.end,
        source="correction" if watched.replaced else "model",
        model=model,
        prompt_sha256=prompt_sha256(watched.system_prompt),
        recorded_at=utc_timestamp(clock()),
        replaced_replies=watched.replaced or UNSET,
    )
