"""The admissible actions of each turn, where they depend on the state: recorded, checked, kept by edits."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from llamagym_tui.cli.demos import expert_episodes
from llamagym_tui.demos import files as demo_files
from llamagym_tui.demos.demonstration import Demonstration, decode, encode
from llamagym_tui.demos.faults import check
from llamagym_tui.protocol.events import (
    EpisodeCorrected,
    EpisodeFinished,
    EpisodeStarted,
    TurnFinished,
)
from tests.text_env import ROOMS, CommandAgent

NOON = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)
SETS = [ROOMS[room][1] for room in ("hall", "hall, with key", "attic, with key")]


@pytest.fixture
def demo() -> Demonstration:
    return next(expert_episodes(CommandAgent(), "chest", episodes=1, seed=1, clock=lambda: NOON))


def test_an_expert_that_needs_info_and_environment_plays_and_its_choices_are_recorded(
    demo: Demonstration,
):
    assert (demo.actions, demo.episode_return) == (["take key", "go north", "open chest"], 1.0)
    assert demo.admissible == SETS
    assert decode(encode(demo)) == demo


def test_a_line_without_admissible_actions_is_of_an_older_version_and_good(
    demo: Demonstration, tmp_path: Path
):
    old = msgspec.structs.replace(demo, admissible=[])
    assert b"admissible" not in encode(old)
    demo_files.append(tmp_path / "old.jsonl", old)
    assert check(tmp_path / "old.jsonl", CommandAgent()) == []
    assert [message.get("actions") for message in old.lesson] == [None] * 7


def test_a_wrong_number_of_sets_is_a_fault(demo: Demonstration, tmp_path: Path):
    demo_files.append(tmp_path / "short.jsonl", msgspec.structs.replace(demo, admissible=SETS[:2]))
    (fault,) = check(tmp_path / "short.jsonl", CommandAgent())
    assert fault.sentence == "There are 2 turns with admissible actions but 3 actions."


def test_of_an_episode_at_the_wheel_the_actions_and_the_models_own_replies_are_recorded() -> None:
    shown = ["wait", "go north"]
    turn = TurnFinished(
        episode=0,
        turn=0,
        reply="wait",
        action="wait",
        action_name="wait",
        how="human",
        reward=0.0,
        replaced="Hm.",
    )
    corrected = EpisodeCorrected(
        started=EpisodeStarted(episode=0, system_prompt="", prompt_version=1, mode="train"),
        observations=["x"],
        admissible=[shown],
        turns=[turn],
        finished=EpisodeFinished(episode=0, episode_return=0.0, length=1, end="truncated"),
    )
    demo = Demonstration.of_correction(
        CommandAgent(), "chest", corrected, model="m", recorded_at=NOON
    )
    assert (demo.admissible, demo.source, demo.replaced_replies) == (
        [shown],
        "correction",
        {0: "Hm."},
    )
