"""Watched episodes, collected from events to be kept as demonstrations; one with a gap is dropped."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from msgspec import UNSET

from llamagym_tui.demos.demonstration import Demonstration, Turn
from llamagym_tui.errors import ActionParseError
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
    """An episode as the trainer streamed it; what is cached is read only once it is finished."""

    started: EpisodeStarted
    observations: list[str] = field(default_factory=list)
    admissible: list[list[str] | None] = field(default_factory=list)
    """Names of the actions that were admissible on each; None: those of every turn."""
    turns: list[TurnFinished] = field(default_factory=list)
    finished: EpisodeFinished | None = None

    @cached_property
    def replaced(self) -> dict[int, str]:
        """The model's own replies in the turns (from 0) in which a person acted."""
        return {
            at: turn.replaced for at, turn in enumerate(self.turns) if turn.replaced is not None
        }

    @cached_property
    def identity(self) -> int:
        """A hash of number and texts: a resumed run gives some episode numbers twice."""
        turns = [(turn.reply, turn.reward) for turn in self.turns]
        return hash((self.started.episode, *self.observations, *turns))

    @property
    def episode_return(self) -> float:
        return sum(turn.reward for turn in self.turns)


class EpisodeRecorder:
    def __init__(self) -> None:
        self._under_way: WatchedEpisode | None = None
        self.last: WatchedEpisode | None = None
        """The episode that ended last; None before the first one."""

    def add(self, event: AnyEvent) -> bool:
        """Take in an event; returns whether it ended an episode of which none is missing."""
        if isinstance(event, EpisodeStarted):
            self._under_way = WatchedEpisode(event)
        episode = self._under_way
        if (
            episode is None
            or not isinstance(event, (ObservationShown, TurnFinished, EpisodeFinished))
            or event.episode != episode.started.episode
        ):
            return False
        observations, turns = len(episode.observations), len(episode.turns)
        match event:
            case ObservationShown() if event.turn == observations:
                episode.observations.append(event.text)
                episode.admissible.append(event.actions)
            case TurnFinished() if event.turn == turns == observations - 1:
                episode.turns.append(event)
            case EpisodeFinished() if event.length == turns == observations:
                episode.finished = event
                self._under_way, self.last = None, episode
                return True
            case _:
                self._under_way = None  # something was missed
        return False


def as_demonstration(
    watched: WatchedEpisode,
    agent: AgentBase,
    agent_name: str,
    *,
    model: str,
    clock: Callable[[], datetime],
) -> Demonstration:
    """A finished episode of the model as data to train on; a correction, if a person acted in some turns.

    Raises:
        ActionParseError: a reply names no action, or was refused, which is not worth imitating. In a correction the
            model's own replies may be of that kind, as they are not trained on.
    """
    assert watched.finished is not None, "only a finished episode is kept"
    turns, admissible = list[Turn](), watched.admissible or [None] * len(watched.turns)
    for observation, names, turn in zip(
        watched.observations, admissible, watched.turns, strict=True
    ):
        reading = agent.read(turn.reply)
        if (reading.failed or turn.is_refused) and not watched.replaced:
            why = "names no action" if reading.failed else "was refused by the environment"
            raise ActionParseError(
                f"Episode {turn.episode:,} was not kept: the reply of turn {turn.turn + 1} {why}, so it is no example "
                "to train on."
            )
        action = turn.action if reading.failed else reading.action
        turns.append(Turn(observation, names, turn.reply, action, turn.reward))
    return Demonstration.of(
        agent,
        agent_name,
        watched.started.system_prompt,
        turns,
        end=watched.finished.end,
        source="correction" if watched.replaced else "model",
        recorded_at=clock(),
        model=model,
        replaced_replies=watched.replaced or UNSET,
    )
