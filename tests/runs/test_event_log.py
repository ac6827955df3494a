"""``events.jsonl``: what is kept of a session, and how fast it may grow."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from llamagym_tui.errors import RunStoreError
from llamagym_tui.protocol.events import (
    EpisodeFinished,
    EpisodeStarted,
    Event,
    ObservationShown,
    PhaseChanged,
    PolicyMapped,
    Progressed,
    PromptChanged,
    RunFinished,
    TokensStreamed,
    TurnFinished,
)
from llamagym_tui.runs import event_log
from llamagym_tui.runs.event_log import EventLog


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def episode(index: int, at_s: float, turns: int = 1) -> list[Event]:
    events: list[Event] = [
        EpisodeStarted(at_s=at_s, episode=index, system_prompt="", prompt_version=0, mode="train")
    ]
    for turn in range(turns):
        events += [
            ObservationShown(at_s=at_s, episode=index, turn=turn, text="16 against 10"),
            TokensStreamed(at_s=at_s, episode=index, turn=turn, text="hit"),
            TurnFinished(at_s=at_s, episode=index, turn=turn, reply="hit", action=1, action_name="hit",
                         how="keyword", reward=0.0),
        ]  # fmt: skip
    return [
        *events,
        EpisodeFinished(
            at_s=at_s, episode=index, episode_return=1.0, length=turns, end="terminated"
        ),
    ]


def written(path: Path, events: list[Event]) -> list[Any]:
    log = EventLog(path)
    for event in events:
        log.append(event)
    log.close()
    return list(event_log.read(path))


def test_events_come_back_in_order_without_their_tokens_and_progress(tmp_path: Path) -> None:
    events = [PhaseChanged(phase="loading"), *episode(0, 1.0), PhaseChanged(phase="updating")]
    kept = written(
        tmp_path / "events.jsonl", [*events, Progressed(doing="updating", done=1, total=2)]
    )
    assert kept == [event for event in events if not isinstance(event, TokensStreamed)]


def test_maps_are_kept_now_and_then_and_the_first_and_last_of_each_prompt(tmp_path: Path) -> None:
    def mapped(at_s: float, prompt_version: int = 0, states: int = 2) -> PolicyMapped:
        shares = [[0.5, 0.5]] * states
        return PolicyMapped(at_s=at_s, update=0, prompt_version=prompt_version, shares=shares)

    events = [
        mapped(1.0, states=1), mapped(1.5), mapped(2.0), mapped(4.4), mapped(4.6), mapped(5.0),
        PromptChanged(at_s=5.1, prompt_version=1, system_prompt="Hit."),
        mapped(5.2, 1), mapped(6.0, 1), mapped(7.0, 1),
        RunFinished(at_s=7.1, episodes=0, env_steps=0, updates=0, elapsed_s=7.1),
    ]  # fmt: skip
    kept = written(tmp_path / "events.jsonl", events)
    assert [event.at_s for event in kept] == [1.0, 1.5, 4.6, 5.0, 5.1, 5.2, 7.0, 7.1]


def test_an_hour_of_maps_is_kept_ever_slower(tmp_path: Path) -> None:
    shares = [[0.5, 0.5]]
    kept = written(
        tmp_path / "events.jsonl",
        [
            PolicyMapped(at_s=float(second), update=second, prompt_version=0, shares=shares)
            for second in range(3600)
        ],
    )
    assert len(kept) == 599  # one in 3 s would be 1,200


def test_watched_episodes_are_kept_whole_or_not_at_all(tmp_path: Path) -> None:
    events = [
        event
        for index in range(1000)
        for event in episode(index, at_s=index / 50, turns=1 + index % 3)
    ]
    kept = written(tmp_path / "events.jsonl", events)
    started = {event.episode for event in kept if isinstance(event, EpisodeStarted)}
    finished = {event.episode: event.length for event in kept if isinstance(event, EpisodeFinished)}
    assert started == set(finished)
    assert len(started) < 1000
    for index, length in finished.items():
        assert (
            len([e for e in kept if isinstance(e, TurnFinished) and e.episode == index]) == length
        )


def test_an_event_stands_in_the_file_within_a_second(tmp_path: Path) -> None:
    clock = Clock()
    log = EventLog(tmp_path / "events.jsonl", clock=clock)
    log.append(PhaseChanged(phase="loading"))
    assert list(event_log.read(tmp_path / "events.jsonl")) == []
    clock.now = 1.0
    log.append(PhaseChanged(phase="rolling_out"))
    assert len(list(event_log.read(tmp_path / "events.jsonl"))) == 2
    log.close()


def test_a_torn_last_line_is_skipped_by_readers_and_cut_by_the_next_writer(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    written(path, [PhaseChanged(phase="loading")])
    with path.open("ab") as file:
        file.write(b'{"type":"ModeCha')
    assert list(event_log.read(path)) == [PhaseChanged(phase="loading")]
    assert written(path, [PhaseChanged(phase="stopped")]) == [
        PhaseChanged(phase="loading"),
        PhaseChanged(phase="stopped"),
    ]


def test_a_broken_line_within_the_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    written(path, [PhaseChanged(phase="loading")])
    path.write_bytes(path.read_bytes() + b"not json\n" + path.read_bytes())
    with pytest.raises(RunStoreError, match=r"Line 2 of .*events\.jsonl is no event"):
        list(event_log.read(path))


def test_a_number_that_json_cannot_say_is_null_on_disk_and_none_when_it_is_read(
    tmp_path: Path,
) -> None:
    finished = EpisodeFinished(episode=0, episode_return=float("nan"), length=1, end="terminated")
    turn = TurnFinished(
        episode=0,
        turn=0,
        reply="null",
        action=None,
        action_name="",
        how="failed",
        reward=float("inf"),
    )
    started = EpisodeStarted(episode=0, system_prompt="null", prompt_version=0, mode="train")
    kept = written(tmp_path / "events.jsonl", [started, turn, finished])
    assert kept[0] == started
    assert (kept[1].reply, kept[1].action, math.isnan(kept[1].reward)) == ("null", None, True)
    assert math.isnan(kept[2].episode_return)
    assert (
        json.loads((tmp_path / "events.jsonl").read_bytes().splitlines()[2])["episode_return"]
        is None
    )


@pytest.mark.slow
def test_conversations_of_a_day_take_less_than_four_times_those_of_half_an_hour(
    tmp_path: Path,
) -> None:
    budget, kept = event_log.ConversationBudget(), {}
    for second in range(24 * 3600):
        for event in episode(second, at_s=float(second), turns=4):
            kept[second // 1800] = kept.get(second // 1800, 0) + budget.keeps(event)
    assert sum(kept.values()) < 4.1 * 10 * 1800
    assert kept[0] > 0.69 * 10 * 1800
    assert all(kept[half_hour] > 300 for half_hour in range(48))
