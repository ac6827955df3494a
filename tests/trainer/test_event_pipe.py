"""A user interface that reads slowly, or not at all: training goes on, and of its figures nothing is lost."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pytest

from llamagym_tui.protocol import wire
from llamagym_tui.protocol.events import (
    AnyEvent,
    EpisodesCounted,
    EpisodeStarted,
    Event,
    EventsLeftOut,
    ObservationShown,
    TurnFinished,
    UpdateFinished,
    WatchedEvent,
)
from llamagym_tui.state.reduce import reduce
from llamagym_tui.state.run import initial_state
from llamagym_tui.state.transcript import Notice
from llamagym_tui.trainer import pipes
from llamagym_tui.trainer.pipes import EventPipe
from tests import fakes


class Ends(NamedTuple):
    """Both ends of a pipe."""

    read: BinaryIO
    pipe: EventPipe
    gone: threading.Event


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ends]:
    monkeypatch.setattr(pipes, "MOST_WAITING", 4096)
    monkeypatch.setattr(pipes, "PATIENCE_S", 0.1)
    read, write = os.pipe()
    gone = threading.Event()
    reader, writer = os.fdopen(read, "rb"), os.fdopen(write, "wb", buffering=0)
    yield Ends(reader, EventPipe(writer, on_gone=gone.set), gone)
    if not reader.closed:
        reader.close()


def update(number: int) -> UpdateFinished:
    return UpdateFinished(update=number, episodes=number, stats=fakes.STATS)


def night(hands: int) -> list[Event]:
    """Hands, and an update after each."""
    told: list[Event] = []
    for index in range(hands):
        told += [
            *fakes.hand(index, [("Your total: 12.", '{"action": 1}', "json")], 1.0),
            update(index + 1),
        ]
    return told


def sent(ends: Ends, events: list[Event]) -> None:
    for event in events:
        ends.pipe.send(event)


def read_all(ends: Ends) -> list[AnyEvent]:
    """All events until the pipe is closed, which happens meanwhile."""
    found: list[AnyEvent] = []

    def read() -> None:
        while (payload := wire.read_frame(ends.read)) is not None:
            found.append(wire.decode_event(payload))

    reader = threading.Thread(target=read)
    reader.start()
    ends.pipe.close()
    ends.pipe._stream.close()
    reader.join(10)
    return found


def test_what_is_read_in_time_arrives_whole_and_in_order(ends: Ends) -> None:
    told = night(2)
    sent(ends, told)
    assert read_all(ends) == told


def test_nobody_who_reads_stops_training_or_loses_a_figure(ends: Ends) -> None:
    told = night(3000)
    began = time.monotonic()
    sent(ends, told)
    assert time.monotonic() - began < 5
    found = read_all(ends)
    assert [event for event in found if isinstance(event, UpdateFinished)] == [
        update(n + 1) for n in range(3000)
    ]
    assert sum(isinstance(event, WatchedEvent) for event in found) < 2000


def test_what_waits_for_a_night_is_small(ends: Ends) -> None:
    counted = EpisodesCounted(
        returns=[1.0, -1.0, 0.0] * 13, lengths=[1, 2, 3] * 13, mode="train", prompt_version=0,
        episodes=999, env_steps=2000, episodes_per_s=190.0,
    )  # fmt: skip
    for _ in range(5 * 600):  # ten minutes at five a second
        ends.pipe.send(counted)
    held = sum(map(len, ends.pipe._blocks)) + len(ends.pipe._tail)
    assert 72 * held < 16 * 2**20, "half a day in 16 MiB"


def test_a_gap_is_marked_where_the_conversation_goes_on(ends: Ends) -> None:
    told = night(2000)
    sent(ends, told)
    deadline = time.monotonic() + 10
    first: list[AnyEvent] = []
    while ends.pipe._waiting and time.monotonic() < deadline:
        first.append(wire.decode_event(wire.read_frame(ends.read) or b""))
    after = list(fakes.hand(5000, [("Your total: 20.", '{"action": 0}', "json")], 1.0))
    sent(ends, after)
    found = first + read_all(ends)
    gaps = [event for event in found if isinstance(event, EventsLeftOut)]
    watched = [event for event in (*told, *after) if isinstance(event, WatchedEvent)]
    arrived = [event for event in found if isinstance(event, WatchedEvent)]
    assert sum(gap.count for gap in gaps) == len(watched) - len(arrived) > 0
    assert found[found.index(gaps[-1]) + 1 :] == after


def test_within_an_episode_the_conversation_goes_on_with_an_observation_and_its_beginning() -> None:
    gap = pipes.Gap()
    started = EpisodeStarted(at_s=1.0, episode=7, system_prompt="", prompt_version=2, mode="train")
    turn = TurnFinished(
        at_s=2.0,
        episode=7,
        turn=0,
        reply="hit",
        action=1,
        action_name="hit",
        how="json",
        reward=0.0,
    )
    shown = ObservationShown(at_s=3.0, episode=7, turn=1, text="15")
    assert list(gap.around(started, pipes.MOST_WAITING + 1)) == []
    assert list(gap.around(turn, 0)) == []
    marked = EventsLeftOut(at_s=3.0, count=1)
    assert list(gap.around(shown, 0)) == [marked, started, shown]
    assert list(gap.around(turn, 0)) == [turn]


def test_a_reader_that_stopped_holds_up_the_end_for_a_while_only(ends: Ends) -> None:
    sent(ends, [update(number) for number in range(2000)])
    began = time.monotonic()
    ends.pipe.close()
    assert time.monotonic() - began < 2


def test_the_end_waits_no_longer_than_something_is_unread(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipes, "PATIENCE_S", 5.0)
    ends.pipe.send(update(1))
    assert wire.read_frame(ends.read)
    began = time.monotonic()
    ends.pipe.close()
    assert time.monotonic() - began < 2


def test_a_reader_that_has_gone_is_noticed_and_nothing_more_is_taken(ends: Ends) -> None:
    ends.read.close()
    ends.pipe.send(update(1))
    assert ends.gone.wait(10)
    with pytest.raises(BrokenPipeError):
        ends.pipe.send(update(2))
    ends.pipe.close()


def test_a_person_sees_how_much_of_the_conversation_is_left_out() -> None:
    state = initial_state(fakes.config(Path("/runs/demo")))
    state = reduce(state, EventsLeftOut(count=1234))
    assert state.transcript.entries[-1].fact == Notice(
        "1,234 lines were not shown: the screen did not keep up, and the run did not wait."
    )
