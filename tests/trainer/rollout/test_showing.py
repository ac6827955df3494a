"""One episode after the other is shown at a pace, and what is played meanwhile is left out."""

from __future__ import annotations

from typing import Any

import pytest

from llamagym_tui.protocol.events import (
    ActionsProbed,
    EpisodeFinished,
    EpisodeStarted,
    Event,
    ObservationShown,
    PhaseChanged,
    TurnFinished,
    WatchChanged,
)
from llamagym_tui.trainer.rollout.showing import Showing
from tests.fake_parts import TURN, Clock


class Table:
    def __init__(self, turn_s: float = 1.5) -> None:
        self.clock = Clock()
        self.told: list[tuple[float, str]] = []
        self.showing = Showing(self._tell, self.clock)
        self.showing.turn_s = turn_s
        self.began = self.clock.now

    def _tell(self, event: Event) -> None:
        said = type(event).__name__
        if hasattr(event, "episode"):
            said += f" {event.episode}"
        self.told.append((self.clock.now - self.began, said))

    def play(self, episode: int, turns: int = 2) -> list[Event]:
        """An episode, as fast as a machine plays it."""
        started: Any = {"episode": episode, "system_prompt": "p", "prompt_version": 0}
        events: list[Event] = [EpisodeStarted(**started, mode="train")]
        for turn in range(turns):
            events.append(ObservationShown(episode=episode, turn=turn, text="?"))
            events.append(TurnFinished(**{**TURN, "turn": turn}, episode=episode))
        end: Any = {"episode_return": 1.0, "length": turns, "end": "terminated"}
        events.append(EpisodeFinished(episode=episode, **end))
        for event in events:
            self.showing.emit(event)
        return events

    def wait(self, seconds: float) -> None:
        for _ in range(round(seconds * 4)):
            self.clock.now += 0.25
            self.showing.go_on()

    def take(self) -> list[tuple[float, str]]:
        told = list(self.told)
        self.told.clear()
        return told


def test_an_episode_is_shown_whole_turn_by_turn_and_then_one_that_has_just_begun() -> None:
    table = Table()
    for episode in range(900):
        table.play(episode)
    table.wait(10.0)
    assert table.take() == [
        (0.0, "EpisodeStarted 0"), (0.0, "ObservationShown 0"),
        (1.5, "TurnFinished 0"), (1.5, "ObservationShown 0"),
        (3.0, "TurnFinished 0"), (3.0, "EpisodeFinished 0"),
    ]  # fmt: skip
    table.play(900, turns=1)
    table.play(901)
    assert [said for _, said in table.take()] == ["EpisodeStarted 900", "ObservationShown 900"]


def test_the_last_state_is_seen_before_the_next_episode_begins() -> None:
    table = Table()
    table.play(0, turns=1)
    table.wait(1.5)
    table.play(1, turns=1)
    table.wait(1.25)
    assert table.take()[-1][1] == "EpisodeFinished 0"
    table.wait(0.25)
    assert (3.0, "EpisodeStarted 1") in table.take()


def test_a_long_episode_is_shown_in_the_time_of_ten_turns() -> None:
    table = Table(turn_s=2.0)
    table.play(0, turns=40)
    table.wait(30.0)
    shown = [at for at, said in table.take() if said == "TurnFinished 0"]
    assert shown == [2.0 + 0.5 * turn for turn in range(40)]


def test_probabilities_that_come_after_their_reply_are_shown_before_it() -> None:
    table = Table()
    table.play(0, turns=2)
    table.showing.emit(ActionsProbed(episode=0, turn=1, names=["a"], shares=[1.0]))
    table.wait(4.0)
    said = [said for _, said in table.take()]
    assert said[-3:] == ["ActionsProbed 0", "TurnFinished 0", "EpisodeFinished 0"]


def test_what_is_no_play_is_told_at_once_and_so_is_another_environment() -> None:
    table = Table()
    table.play(0)
    table.showing.emit(PhaseChanged(phase="updating"))
    table.showing.emit(WatchChanged(env=1))
    table.play(7)
    said = [said for _, said in table.take()]
    assert said[2:] == ["PhaseChanged", "WatchChanged", "EpisodeStarted 7", "ObservationShown 7"]


@pytest.mark.parametrize("how", ["full speed", "live"])
def test_at_full_speed_and_for_who_steps_every_event_is_told_as_it_comes(how: str) -> None:
    table = Table(turn_s=0.0 if how == "full speed" else 1.5)
    if how == "live":
        table.play(0)
        table.take()
        table.showing.go_live(
            [EpisodeStarted(episode=4, system_prompt="p", prompt_version=0, mode="train")]
        )
        assert table.take() == [(0.0, "EpisodeStarted 4")]
    assert len(table.play(5)) == len(table.take())
