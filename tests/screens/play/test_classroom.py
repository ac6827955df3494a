"""A class in its folder: how far a seat is, after whatever was written, and what is known of the class as a whole."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.config import RunConfig
from llamagym_tui.demos import files as demo_files
from llamagym_tui.demos.demonstration import Demonstration, PlayedTurn
from llamagym_tui.demos.human_game import MATCH
from llamagym_tui.errors import UsageError
from llamagym_tui.game.environment import episode_seed
from llamagym_tui.protocol.events import EvaluationFinished, MatchPlayed
from llamagym_tui.screens.play.classroom import CLASS_FILE, ClassRecord, Classroom, class_lines
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
    assert list(again.matches) == [2]
    assert again.match_of(1).returns == []


@pytest.mark.parametrize("content", [None, b"[]", b'{"seats": 3}'])
def test_a_folder_without_a_class_is_a_sentence(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / CLASS_FILE).write_bytes(content)
    with pytest.raises(UsageError, match=r"holds no class .*serve --seats"):
        Classroom.read(tmp_path)


def test_the_table_has_the_best_first_and_says_what_may_be_chance(tmp_path: Path) -> None:
    """The class as a whole has an interval over the 20 episodes, not over the 40 that two seats played."""
    room = classroom(tmp_path, returns=[0.0] * 10 + [1.0] * 10)
    play(room, 1, [1.0] * 10 + [0.0] * 10)
    play(room, 2, [1.0] * MATCH)
    play(room, 3, [1.0] * 5)
    lines = [line.text for line in class_lines(room.record, room.matches, own=1)]
    # Seat 1 is ahead by +1 ten times and by −1 ten times: 0 ± 1.96 √(20/19/20). Seat 2 by +1 and by 0: 0.5 ± 0.22.
    # The class is ahead by (1 + 1)/2 and by (−1 + 0)/2: mean 0.25, √(20 · 0.75²/19/20) · 1.96 = 0.34.
    assert lines == [
        "2 seats against the model: +0.25 ± 0.34 chips, which may be chance"
        " (95 %, 20 pairs of episodes on the same seeds).",
        "Apart from it by more than their ±: 1 of 2; by chance alone 1 in 20 would be.",
        "",
        "          mean return         more than the model",
        "  seat 2  +1 ± 0              +0.50 ± 0.22",
        "▸ seat 1  +0.50 ± 0.22        +0.00 ± 0.45, which may be chance",
        "  model   +0.50 ± 0.22",
        "  seat 3  5 of 20 episodes played",
    ]


def test_before_anybody_has_finished_the_model_stands_alone_and_who_plays_like_it_is_told_so(
    tmp_path: Path,
) -> None:
    room = classroom(tmp_path, returns=[None, *[1.0, -1.0] * 9, 1.0])
    play(room, 1, [1.0])
    assert class_lines(room.record, room.matches)[0].text == (
        "No seat has played all 20 episodes yet."
    )
    play(room, 2, [0.0, *[1.0, -1.0] * 9, 1.0])
    row = class_lines(room.record, room.matches)[5].text
    assert row.endswith("as much, in every episode")
