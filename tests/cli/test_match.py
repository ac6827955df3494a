"""`match`: how games are counted for A, whichever seat it has, and who begins them."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from llamagym_tui.cli import match
from llamagym_tui.settings import RunConfig
from llamagym_tui.trainer.rollout.episode_counts import EpisodeCounts

CONFIG = RunConfig(agent="tic_tac_toe", run_dir="", env={"opponent": "expert"})
RETURNS = {"player": [1.0, 0.0, 1.0], "opponent": [-1.0, 0.0, 0.0]}


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What was played: episodes, greedy, seed, and who begins; the player wins when it begins."""
    calls: list[tuple[Any, ...]] = []

    def play(episodes: int, greedy: bool, shown: Any, **options: Any) -> None:
        begins = options["env"]["begins"]
        calls.append((episodes, greedy, options["seed"], begins))
        assert options["held_out"] is False
        options["ended"] += [EpisodeCounts(episode_return=each) for each in RETURNS[begins]]

    player = SimpleNamespace(play=play, close=lambda: None)
    monkeypatch.setattr(match, "Player", lambda config, progress: player)
    return calls


@pytest.mark.parametrize(
    ("is_swapped", "first", "second"), [(False, (2, 1, 0), (0, 2, 1)), (True, (1, 2, 0), (0, 1, 2))]
)
def test_games_are_counted_for_a_on_equal_seeds_with_sides_swapped(
    played, capsys, is_swapped, first, second
):
    settings = {"episodes": 5, "greedy": False, "is_swapped": is_swapped}
    match.match(CONFIG, ("one", "other"), json_output=True, **settings)
    found = json.loads(capsys.readouterr().out)
    assert [call[0] for call in played] == [3, 3]
    assert played[0][2] == played[1][2]
    assert [call[3] for call in played] == ["player", "opponent"]
    names = ("won", "drawn", "lost")
    # In B's place, what the player wins is lost for A, who begins where the player comes second.
    assert found["sides"] == {
        "begins": dict(zip(names, first, strict=True)),
        "comes second": dict(zip(names, second, strict=True)),
    }
    total = [a + b for a, b in zip(first, second, strict=True)]
    assert [found[name] for name in names] == total
    assert found["not_lost"] == pytest.approx(1 - total[2] / 6)
    match.match(CONFIG, ("one", "other"), **settings)
    printed = capsys.readouterr().out
    assert f"{total[0]} won, {total[1]} drawn, {total[2]} lost" in printed
    assert f"A begins: {first[0]} won, {first[1]} drawn, {first[2]} lost." in printed
    assert printed.splitlines()[-1] == "B  other"
