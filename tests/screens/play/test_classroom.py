"""A class in its folder: how far a seat is, after whatever was written, and what is known of the class as a whole."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.demos import files as demo_files
from llamagym_tui.demos.demonstration import Demonstration, PlayedTurn
from llamagym_tui.demos.human_game import MATCH
from llamagym_tui.errors import UsageError
from llamagym_tui.game.environment import episode_seed
from llamagym_tui.protocol.events import EvaluationFinished, MatchPlayed
from llamagym_tui.screens.play.classroom import CLASS_FILE, ClassRecord, Classroom
from llamagym_tui.settings import RunConfig
from tests import fakes

SEED = 7


def model_part(returns: list[float | None]) -> MatchPlayed:
    figures: dict[str, Any] = {"parse_failure_rate": 0.0, "elapsed_s": 1.0, "return_stderr": 0.1}
    played = EvaluationFinished(episodes=MATCH, greedy=True, mean_return=-0.05, **figures)
    return MatchPlayed(seed=SEED, returns=returns, played=played)


def classroom(
    folder: Path, *, returns: list[float | None] | None = None, config: RunConfig | None = None
) -> Classroom:
    record = ClassRecord(
        config=config or fakes.config(folder / "run", system_prompt="Be bold."),
        match=model_part(returns or [0.0] * MATCH),
        seats=3,
        return_unit="chips",
    )
    return Classroom.begun(folder, record)


def play(room: Classroom, seat: int, returns: list[float], first: int = 0) -> None:
    """Write a seat's episodes, from a number on."""
    for number, reward in enumerate(returns, first):
        demo = Demonstration.of(
            BlackjackAgent(),
            "blackjack",
            "Be bold.",
            [PlayedTurn("Your total: 20.", None, '{"action": 0}', 0, reward)],
            end="terminated",
            source="human",
            recorded_at=datetime(2026, 1, 2, 12, 0, tzinfo=UTC),
            seed=episode_seed(SEED, number),
        )
        demo_files.append(room.seat_path(seat), demo)


def test_a_seat_goes_on_where_its_file_ends_and_counts_an_episode_as_it_was_played_first(
    tmp_path: Path,
) -> None:
    room = classroom(tmp_path)
    play(room, 2, [1.0, -1.0])
    play(room, 2, [1.0, 1.0], first=1)  # episode 1 again, then episode 2
    with room.seat_path(2).open("ab") as file:
        file.write(b'{"messages": [')  # as a crash leaves it
    again = Classroom.read(tmp_path)
    assert again.record == room.record
    assert again.match_of(2).returns == [1.0, -1.0, 1.0]
    assert again.match_of(1).returns == []


@pytest.mark.parametrize("content", [None, b"[]", b'{"seats": 3}'])
def test_a_folder_without_a_class_is_a_sentence(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / CLASS_FILE).write_bytes(content)
    with pytest.raises(UsageError, match="holds no class"):
        Classroom.read(tmp_path)


def test_the_table_has_the_best_first_and_then_who_is_still_playing(tmp_path: Path) -> None:
    room = classroom(tmp_path, returns=[0.0] * 10 + [1.0] * 10)
    play(room, 1, [1.0] * 10 + [0.0] * 10)
    play(room, 2, [1.0] * MATCH)
    play(room, 3, [1.0] * 5)
    # Seat 1 is ahead by +1 ten times and by −1 ten times: 0 ± 1.96 √(20/19/20). Seat 2 by +1 and by 0: 0.5 ± 0.22.
    assert room.table(own=1) == [
        "          mean return         more than the model",
        "  seat 2  +1 ± 0              +0.50 ± 0.22",
        "  model   +0.50 ± 0.22",
        "▸ seat 1  +0.50 ± 0.22        +0.00 ± 0.45",
        "  seat 3  5 of 20 episodes played",
    ]
