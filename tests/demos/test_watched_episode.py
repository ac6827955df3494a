"""A watched episode of the model as a demonstration: whole or not at all, and only if its replies can be read."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from llamagym_tui.demos import files as demo_files
from llamagym_tui.demos.watched_episode import EpisodeRecorder
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


@pytest.mark.parametrize("missing", range(6))
def test_an_episode_of_which_something_was_missed_is_none(missing: int) -> None:
    events = [event for event in fakes.hand(3, TURNS, 1.0) if not isinstance(event, TokensStreamed)]
    del events[missing]
    assert recorder(*events).last is None


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
