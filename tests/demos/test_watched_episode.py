"""A watched episode of the model as a demonstration: whole or not at all, and only if its replies can be read."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.demos import files as demo_files
from llamagym_tui.demos.watched_episode import EpisodeRecorder, as_demonstration
from llamagym_tui.errors import ActionParseError
from llamagym_tui.protocol.events import TokensStreamed
from llamagym_tui.screens.demos.recording import DemoRecorder
from llamagym_tui.setup.run_agent import RunAgent
from tests import fakes

pytestmark = pytest.mark.usefixtures("data_folder")
NOON = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)
TURNS = [
    ("Your total: 12.", '{"action": 1}', "json"),
    ("Your total: 20.", 'Stick: {"action": 0}', "json"),
]


def recorder(*events: object) -> EpisodeRecorder:
    recorder = EpisodeRecorder()
    for event in events:
        recorder.add(event)  # type: ignore[arg-type]
    return recorder


def test_an_episode_is_kept_as_it_was_streamed(tmp_path: Path) -> None:
    last = recorder(*fakes.hand(3, TURNS, 1.0)).last
    assert last is not None
    demo = as_demonstration(
        last, BlackjackAgent(), "blackjack", model="bundled", clock=lambda: NOON
    )
    assert [message["content"] for message in demo.messages[1:]] == [
        "Your total: 12.",
        '{"action": 1}',
        "Your total: 20.",
        'Stick: {"action": 0}',
    ]
    assert (demo.actions, demo.rewards, demo.end, demo.source) == (
        [1, 0],
        [0.0, 1.0],
        "terminated",
        "model",
    )
    demo_files.append(tmp_path / "kept.jsonl", demo)
    assert demo_files.check(tmp_path / "kept.jsonl", BlackjackAgent()) == []


@pytest.mark.parametrize("missing", range(6))
def test_an_episode_of_which_something_was_missed_is_none(missing: int) -> None:
    events = [event for event in fakes.hand(3, TURNS, 1.0) if not isinstance(event, TokensStreamed)]
    del events[missing]
    assert recorder(*events).last is None


def test_of_more_than_2000_turns_the_oldest_episodes_go() -> None:
    two, long = TURNS, TURNS * 999
    kept = recorder(*fakes.hand(1, two, 1.0), *fakes.hand(2, long, 1.0))
    assert list(kept.ended) == [1, 2]
    for event in fakes.hand(3, TURNS[:1], 1.0):
        kept.add(event)
    assert list(kept.ended) == [2, 3]
    for event in fakes.hand(2, long, 1.0):
        kept.add(event)
    assert list(kept.ended) == [3, 2], "one that is shown again is counted once"
    kept = recorder(*fakes.hand(1, two, 1.0), *fakes.hand(2, long * 3, 1.0))
    assert list(kept.ended) == [2]


def test_an_episode_whose_reply_names_no_action_is_refused() -> None:
    last = recorder(*fakes.hand(3, [("Your total: 12.", "Hm.", "failed")], 1.0)).last
    assert last is not None
    with pytest.raises(ActionParseError, match="the reply of turn 1 names no action"):
        as_demonstration(last, BlackjackAgent(), "blackjack", model="bundled", clock=lambda: NOON)


def test_an_episode_that_is_shown_again_is_not_kept_again() -> None:
    recorder = DemoRecorder(RunAgent("blackjack"), clock=lambda: NOON, next_seed=lambda: 1)
    for event in fakes.hand(0, TURNS, 1.0):
        recorder.add(event, "bundled")
    recorder.keep("bundled")
    for event in fakes.hand(0, TURNS, 1.0):
        recorder.add(event, "bundled")
    assert recorder.keepable() is None
    assert recorder.waiting == 1


def test_equal_episodes_of_one_second_are_one() -> None:
    seconds = iter([NOON, NOON, NOON.replace(second=1)])
    recorder = DemoRecorder(RunAgent("blackjack"), clock=lambda: next(seconds), next_seed=lambda: 1)
    for episode in range(3):
        for event in fakes.hand(episode, TURNS, 1.0):
            recorder.add(event, "bundled")
        recorder.keep("bundled")
    recorder.writer.save()
    assert len(demo_files.read(recorder.writer.path)) == 2
    assert demo_files.check(recorder.writer.path, BlackjackAgent()) == []


def test_what_a_warm_start_could_train_on_is_checked() -> None:
    recorder = DemoRecorder(RunAgent("blackjack"), clock=lambda: NOON, next_seed=lambda: 1)
    assert [offer.title for offer in recorder.offers("Play.")] == ["shipped with the agent"]
    path = demo_files.default_path("blackjack")
    path.parent.mkdir()
    path.write_bytes(b"nonsense\n")
    own, shipped = recorder.offers("Play.")
    assert "line 1: This is no demonstration" in own.fault
    assert shipped.fault == ""
    assert shipped.facts is not None
    assert shipped.facts.episodes == 500
