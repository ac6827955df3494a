"""What is told of many environments, and what a screen knows of it."""

from __future__ import annotations

import pytest

from llamagym_tui.protocol.commands import SetPace, Step, Watch, WatchNext
from llamagym_tui.protocol.events import (
    EpisodeFinished,
    EpisodeStarted,
    Event,
    ObservationShown,
    PaceChanged,
    PhaseChanged,
    TurnFinished,
    WarningRaised,
    WatchChanged,
)
from llamagym_tui.state.watching import TURN_S, Watching, watched_text
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


WHOLE = ["EpisodeStarted", "ObservationShown", "TurnFinished", "EpisodeFinished"]


def whole(episode: int) -> list[str]:
    return [f"{kind} {episode}" for kind in WHOLE]


def test_the_first_environment_is_watched_at_first():
    table = Table()
    table.play(1, 5, 1.0)
    assert table.told() == []
    table.play(0, 6, 1.0)
    assert table.told() == whole(6)


def test_another_environment_is_told_from_the_beginning_of_its_episode_and_then_as_it_plays():
    table = Table()
    table.begin(2, 8)
    table.spectator.watch(2)
    assert table.said[0] == WatchChanged(kind="env", env=2)
    assert table.told()[1:] == ["EpisodeStarted 8", "ObservationShown 8"]
    table.turn(0, 7)
    table.turn(2, 8)
    assert table.told() == ["TurnFinished 8"]


@pytest.mark.parametrize(("asked", "env"), [(3, 0), (-1, 2), (4, 1)])
def test_environments_are_counted_in_a_circle(asked: int, env: int):
    table = Table()
    table.spectator.watch(asked)
    assert table.said == [WatchChanged(kind="env", env=env)]


def test_the_next_failure_is_told_from_its_beginning_to_its_end_and_then_nothing():
    table = Table()
    table.begin(1, 4)
    assert table.spectator.watch_next("failure")
    assert table.said == [WatchChanged(kind="env", env=0, awaits_failure=True)]
    table.said.clear()
    table.turn(1, 4, how="failed")
    assert table.said[0] == WatchChanged(kind="failure", env=1)
    table.end(1, 4, -1.0)
    assert table.told()[1:] == whole(4)
    table.play(1, 9, 1.0)
    table.play(0, 10, 1.0)
    assert table.told() == []
    assert table.spectator.env is None


def test_a_failure_that_does_not_come_is_waited_for_during_one_batch_while_the_play_goes_on():
    table = Table()
    table.play(0, 1, 1.0)
    table.spectator.next_batch()
    assert table.spectator.watch_next("best")
    assert table.spectator.watch_next("failure", replies=2)
    assert table.spectator.env == 0, "the play is shown meanwhile"
    table.play(1, 2, 1.0)
    table.play(0, 3, 1.0)
    assert WatchChanged(kind="env", env=0, none_in=2) in table.said
    table.turn(1, 4, how="failed")
    assert table.spectator.env == 0


def test_a_failure_of_the_watched_environment_is_not_told_twice():
    table = Table()
    table.spectator.watch_next("failure")
    table.begin(0, 4)
    table.told()
    table.turn(0, 4, how="failed")
    assert [type(event) for event in table.said] == [TurnFinished, WatchChanged]


def test_only_one_failure_is_told():
    table = Table()
    table.spectator.watch_next("failure")
    for env in (1, 2):
        table.begin(env, env)
        table.turn(env, env, how="failed")
    assert table.said[-1].episode == 1


def test_the_best_and_the_worst_of_the_last_batch_are_told_again():
    table = Table()
    for env, episode, episode_return in [(0, 0, 0.0), (1, 1, 1.5), (2, 2, -1.0), (1, 3, 1.5)]:
        table.play(env, episode, episode_return)
    table.spectator.next_batch()
    table.play(0, 4, 9.0)
    table.told()
    assert table.spectator.watch_next("best")
    assert table.told()[1:] == whole(1)
    assert table.spectator.watch_next("worst")
    assert table.told()[1:] == whole(2)
    table.play(0, 5, 0.0)
    assert table.told() == [], "what was asked for stands still"
    table.spectator.watch(0)
    assert table.told()[1:] == whole(5)


def test_before_a_batch_is_complete_the_best_is_that_of_the_episodes_so_far():
    table = Table()
    assert not table.spectator.watch_next("best")
    assert table.said == [WatchChanged(kind="env", env=0)]
    table.play(2, 7, -1.0)
    assert table.spectator.watch_next("best")
    assert table.told()[-4:] == whole(7)


def test_play_that_is_of_no_batch_has_a_best_of_its_own():
    table = Table()
    table.play(1, 1, 9.0)
    table.spectator.next_batch()
    table.spectator.forget_batches()
    table.play(1, 2, 0.0)
    table.spectator.watch_next("best")
    assert table.told()[-4:] == whole(2)


def test_fewer_environments_are_watched_from_the_first():
    table = Table()
    table.spectator.watch(2)
    table.spectator.reset(2)
    assert table.said[-1] == WatchChanged(kind="env", env=0)


def test_only_turns_that_were_told_as_they_were_played_count_for_the_pace():
    table = Table()
    table.play(0, 0, 1.0)
    table.play(1, 1, 1.0)
    table.spectator.watch(1)
    assert table.spectator.turns == 1


def test_what_is_asked_for_is_active_only_when_it_is_confirmed():
    asked = Watching().requesting(Watch(env=1)).requesting(SetPace(turn_s=1.5))
    assert (asked.now.env, asked.env_intended, asked.turn_s, asked.turn_s_intended) == (
        0,
        1,
        0.0,
        1.5,
    )
    confirmed = asked.after(WatchChanged(kind="env", env=1)).after(PaceChanged(turn_s=1.5))
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
    asked = (
        Watching()
        .requesting(Watch(env=1))
        .requesting(Watch(env=2))
        .after(WatchChanged(kind="env", env=1))
    )
    assert (asked.now.env, asked.requested) == (1, Watch(env=2))


def test_what_was_asked_for_already_is_not_asked_again():
    asked = Watching().requesting(WatchNext(kind="best")).requesting(Step())
    assert asked.requesting(WatchNext(kind="best")) is asked
    assert asked.requesting(Step(unit="update")) is asked
    assert asked.requesting(SetPace(turn_s=0.0)) is asked


@pytest.mark.parametrize(
    "answer",
    [
        PhaseChanged(phase="rolling_out"),
        PhaseChanged(phase="paused"),
        WarningRaised(message="", refused="step"),
    ],
)
def test_a_step_is_pending_until_it_begins_or_is_refused(answer: Event):
    asked = Watching().requesting(Step())
    assert asked.after(PhaseChanged(phase="updating")).step_requested is not None
    assert asked.after(answer).step_requested is None  # type: ignore[arg-type]


def test_speeds_go_one_by_one_and_end_at_both_ends():
    watching, seen = Watching(), []
    for _ in range(len(TURN_S)):
        watching = watching.after(PaceChanged(turn_s=watching.slower()))
        seen.append(watching.turn_s)
    assert seen == [0.5, 1.5, 4.0, 4.0]
    assert watching.faster() == 1.5
    assert Watching().faster() == 0.0


def test_what_is_watched_is_said_in_words():
    assert watched_text(WatchChanged(kind="env", env=3, none_in=1024), 128) == (
        "none in the last 1,024 replies; watching environment 4 of 128"
    )
    assert watched_text(WatchChanged(kind="env", env=3), 128) == "watching environment 4 of 128"
    assert "the worst episode of the last batch" in watched_text(
        WatchChanged(kind="worst", env=0), 8
    )
    assert "waiting for a reply without an action" in watched_text(
        WatchChanged(kind="env", env=0, awaits_failure=True), 8
    )
