"""A recording is read in pieces, played by a clock, and every jump shows what playing would have shown."""

from __future__ import annotations

from functools import reduce as fold
from pathlib import Path

import msgspec
import pytest

from llamagym_tui.protocol.events import (
    AnyEvent,
    Event,
    RunFinished,
    RunStarted,
    WarningRaised,
)
from llamagym_tui.state import history
from llamagym_tui.state.history import Recording, ReplayPlayer
from llamagym_tui.state.reduce import reduce
from llamagym_tui.state.run import RunState
from llamagym_tui.state.transcript import Notice
from tests import fakes
from tests.recorded_run import record


class Clock:
    """Time that the test lets pass."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def stamped(*events: Event, every_s: float = 1.0) -> list[AnyEvent]:
    """Events at 0, 1, 2 … seconds."""
    return [
        msgspec.structs.replace(event, at_s=index * every_s) for index, event in enumerate(events)
    ]  # type: ignore[misc]


def whole(run_dir: Path) -> Recording:
    recording = Recording(run_dir)
    while not recording.complete:
        recording.read_on()
    return recording


def player(run_dir: Path) -> tuple[ReplayPlayer, Clock]:
    clock = Clock()
    return ReplayPlayer(whole(run_dir), clock=clock), clock


def warnings(count: int) -> list[AnyEvent]:
    """After the beginning of the run, a second apart."""
    told = [WarningRaised(message=str(index)) for index in range(count)]
    return [fakes.run_started("run"), *stamped(*told)]


def last_warning(state: RunState) -> str:
    notices = [
        entry.fact.text for entry in state.transcript.entries if isinstance(entry.fact, Notice)
    ]
    return notices[-1].removeprefix("Warning: ") if notices else ""


def test_time_goes_on_over_a_resumed_session_and_a_long_silence_is_cut_short(tmp_path: Path):
    began = fakes.run_started("run")
    times = [(1.0, 0.0), (2.0, 1.0), (2.5, 1.5), (3600.0, 6.5), (0.0, 6.5), (4.0, 10.5)]
    events = [msgspec.structs.replace(began, at_s=at_s) for at_s, _ in times]
    recording = whole(record(tmp_path, events))
    assert recording.duration_s == times[-1][1], "and loading takes no time"


def test_what_is_due_by_the_clock_is_played_and_no_more(tmp_path: Path):
    playing, clock = player(record(tmp_path, warnings(5)))
    playing.tick()
    assert last_warning(playing.state) == "0"
    clock.now += 2.5
    playing.tick()
    assert (last_warning(playing.state), playing.at_s) == ("2", 2.5)


def test_the_end_pauses_and_playing_then_begins_again(tmp_path: Path):
    playing, clock = player(record(tmp_path, warnings(4)))
    clock.now += 60.0
    playing.tick()
    assert (playing.playing, playing.at_end, last_warning(playing.state)) == (False, True, "3")
    playing.toggle()
    assert (playing.playing, playing.at_s, last_warning(playing.state)) == (True, 0.0, "0")


def test_every_jump_shows_what_playing_up_to_there_would_have_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(history, "KEYFRAME_EVERY", 7)
    events = stamped(*fakes.demo_run(batches=12))
    kept = [event for event in events if type(event).__name__ != "TokensStreamed"]
    run_dir = record(tmp_path, events)
    playing, _ = player(run_dir)
    opening = playing.recording.frame_at(-1.0).state
    loaded_s = next(event.at_s for event in kept if isinstance(event, RunStarted))
    for target in (11.0, 3.0, 30.0, 29.0, 0.0, 17.0, 18.0):
        playing.jump(target)
        expected: RunState = fold(
            reduce, [event for event in kept if event.at_s <= loaded_s + target], opening
        )
        assert playing.state == expected, target


def test_a_recording_ends_before_a_broken_line_and_says_where_that_is(tmp_path: Path):
    run_dir = record(tmp_path, warnings(2))
    with (run_dir / "events.jsonl").open("a") as file:
        file.write("nonsense\n")
    playing, _ = player(run_dir)
    playing.jump(9.0)
    assert (last_warning(playing.state), playing.at_end) == ("1", True)
    assert "Line 4 of" in playing.recording.fault


def test_a_folder_that_no_process_holds_here_is_followed_to_the_end_of_its_run(tmp_path: Path):
    events = [
        *warnings(4),
        RunFinished(at_s=9.0, episodes=0, env_steps=0, updates=0, elapsed_s=9.0),
    ]
    lines = (record(tmp_path / "whole", events) / "events.jsonl").read_bytes().splitlines(True)
    run_dir = record(tmp_path / "copy", [])

    def copied(content: bytes) -> None:
        """A newer copy takes the place of the old one, as `rsync` does it."""
        (run_dir / "draft").write_bytes(content)
        (run_dir / "draft").replace(run_dir / "events.jsonl")

    def read(recording: Recording) -> None:
        recording.look_again()
        while not recording.complete:
            recording.read_on()

    copied(b"".join(lines[:3]))
    unfollowed, recording = Recording(run_dir), Recording(run_dir, follows=True)
    read(unfollowed)
    read(recording)
    assert (unfollowed.goes_on, recording.goes_on) == (False, True)
    playing = ReplayPlayer(recording, clock=Clock())
    playing.jump(9.0)
    assert (last_warning(playing.state), playing.at_end) == ("1", False)
    copied(b"".join(lines[:4]) + lines[4][:20])
    read(recording)
    playing.jump(9.0)
    assert (last_warning(playing.state), recording.goes_on) == ("2", True)
    copied(b"".join(lines))
    read(recording)
    playing.jump(9.0)
    assert (last_warning(playing.state), playing.at_end) == ("3", True)
    assert not recording.goes_on
