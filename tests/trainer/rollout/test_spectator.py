"""One environment of many is streamed."""

from __future__ import annotations

from llamagym_tui.protocol.events import (
    EpisodeStarted,
    Event,
    ObservationShown,
    TurnFinished,
    WatchChanged,
)
from llamagym_tui.trainer.rollout.spectator import Spectator

ENVS = 3


class Table:
    """Environments that play as a test says, heard by a spectator."""

    def __init__(self) -> None:
        self.said: list[Event] = []
        self.spectator = Spectator(self.said.append)
        self.spectator.reset(ENVS)

    def begin(self, env: int, episode: int) -> None:
        self.spectator.observe(
            env, EpisodeStarted(episode=episode, system_prompt="p", prompt_version=0, mode="train")
        )
        self.spectator.observe(env, ObservationShown(episode=episode, turn=0, text="?"))

    def turn(self, env: int, episode: int, how: str = "json") -> None:
        told = TurnFinished(
            episode=episode,
            turn=0,
            reply="1",
            action=1,
            action_name="go",
            how=how,
            reward=0.0,  # type: ignore[arg-type]
        )
        self.spectator.observe(env, told)

    def told(self) -> list[str]:
        """What was passed on since the last time: kinds and episodes."""
        said = [f"{type(event).__name__} {getattr(event, 'episode', event)}" for event in self.said]
        self.said.clear()
        return said


def test_another_environment_is_told_from_the_beginning_of_its_episode_and_then_as_it_plays():
    table = Table()
    table.begin(2, 8)
    table.spectator.watch(2)
    assert table.said[0] == WatchChanged(env=2)
    assert table.told()[1:] == ["EpisodeStarted 8", "ObservationShown 8"]
    table.turn(0, 7)
    table.turn(2, 8)
    assert table.told() == ["TurnFinished 8"]
