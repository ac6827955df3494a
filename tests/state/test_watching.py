"""What is told of many environments, and what a screen knows of it."""

from __future__ import annotations

from llamagym_tui.protocol.commands import SetPace, Watch
from llamagym_tui.protocol.events import (
    EpisodeFinished,
    EpisodeStarted,
    Event,
    ObservationShown,
    PaceChanged,
    TurnFinished,
    WatchChanged,
)
from llamagym_tui.state.watching import Watching
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

    def end(self, env: int, episode: int, episode_return: float) -> None:
        end = EpisodeFinished(
            episode=episode, episode_return=episode_return, length=1, end="terminated"
        )
        self.spectator.observe(env, end)

    def play(self, env: int, episode: int, episode_return: float) -> None:
        self.begin(env, episode)
        self.turn(env, episode)
        self.end(env, episode, episode_return)

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


def test_what_is_asked_for_is_active_only_when_it_is_confirmed():
    asked = Watching().requesting(Watch(env=1)).requesting(SetPace(turn_s=1.5))
    assert (asked.now.env, asked.env_intended, asked.turn_s, asked.turn_s_intended) == (
        0,
        1,
        0.0,
        1.5,
    )
    confirmed = asked.after(WatchChanged(env=1)).after(PaceChanged(turn_s=1.5))
    assert (
        confirmed.now.env,
        confirmed.requested,
        confirmed.turn_s,
        confirmed.turn_s_requested,
    ) == (
        1,
        None,
        1.5,
        None,
    )


def test_an_answer_to_an_older_request_leaves_the_newer_one_pending():
    asked = Watching().requesting(Watch(env=1)).requesting(Watch(env=2)).after(WatchChanged(env=1))
    assert (asked.now.env, asked.requested) == (1, Watch(env=2))
