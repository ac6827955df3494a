"""Watched episodes, collected from events to be kept as demonstrations; an episode with a gap is dropped."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from llamagym_tui.demos.demonstration import Demonstration, PlayedTurn
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.protocol.events import (
    AnyEvent,
    EpisodeFinished,
    EpisodeStarted,
    ObservationShown,
    TurnFinished,
)


@dataclass
class WatchedEpisode:
    """An episode as the trainer streamed it, which grows until it is finished.

    An `EpisodeCorrected` has the same fields, whole from the start. It is an event on the wire, and events are frozen
    and have one form, so that neither can stand for the other.
    """

    started: EpisodeStarted
    observations: list[str] = field(default_factory=list)
    """The observations, turn by turn."""
    admissible: list[list[str] | None] = field(default_factory=list)
    """Names of the admissible actions of each turn; None for all."""
    turns: list[TurnFinished] = field(default_factory=list)
    finished: EpisodeFinished | None = None
    """The end of the episode; None while it is under way."""

    # What is cached here is only read once the episode is finished.

    @cached_property
    def replaced(self) -> dict[int, str]:
        """The model's own replies in the turns, counted from 0, in which a person acted."""
        found = {}
        for number, turn in enumerate(self.turns):
            if turn.replaced is not None:
                found[number] = turn.replaced
        return found

    @property
    def episode_return(self) -> float:
        """Sum of the rewards so far."""
        return sum(turn.reward for turn in self.turns)


class EpisodeRecorder:
    """Puts the events of a watched conversation together to whole episodes."""

    def __init__(self) -> None:
        self._under_way: WatchedEpisode | None = None
        self.last: WatchedEpisode | None = None
        """The episode that ended last; None before the first one."""

    def add(self, event: AnyEvent) -> bool:
        """Take in an event; returns whether it ended an episode of which no event is missing."""
        if isinstance(event, EpisodeStarted):
            self._under_way = WatchedEpisode(event)
        episode = self._under_way
        if episode is None or not isinstance(
            event, (ObservationShown, TurnFinished, EpisodeFinished)
        ):
            return False
        if event.episode != episode.started.episode:
            return False
        observations = len(episode.observations)
        turns = len(episode.turns)
        match event:
            case ObservationShown() if event.turn == observations:
                episode.observations.append(event.text)
                episode.admissible.append(event.actions)
            case TurnFinished() if event.turn == turns == observations - 1:
                episode.turns.append(event)
            case EpisodeFinished() if event.length == turns == observations:
                episode.finished = event
                self._under_way = None
                self.last = episode
                return True
            case _:
                self._under_way = None  # an event is missing
        return False


def as_demonstration(
    watched: WatchedEpisode,
    agent: AgentBase,
    agent_name: str,
    *,
    model: str,
    clock: Callable[[], datetime],
) -> Demonstration:
    """An episode in which a person had the wheel, as data to train on.

    The model's own replies need not name an action, as they are not trained on.
    """
    assert watched.finished is not None, "only a finished episode is recorded"
    turns: list[PlayedTurn] = []
    for number, turn in enumerate(watched.turns):
        # A correction has no list at all if all actions were admissible in every turn.
        admissible = watched.admissible[number] if watched.admissible else None
        reading = agent.read(turn.reply)
        action = turn.action if reading.failed else reading.action
        observation = watched.observations[number]
        turns.append(PlayedTurn(observation, admissible, turn.reply, action, turn.reward))
    return Demonstration.of(
        agent,
        agent_name,
        watched.started.system_prompt,
        turns,
        end=watched.finished.end,
        source="correction",
        recorded_at=clock(),
        model=model,
        replaced_replies=watched.replaced,
    )
