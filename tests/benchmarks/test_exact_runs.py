"""A run's maps say exactly what its policies are worth."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.exact_blackjack import STATES, optimal_policy
from benchmarks.exact_runs import exact_returns
from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.protocol.events import PolicyMapLaidOut, PolicyMapped
from llamagym_tui.protocol.map_layout import MapCell, MapPanel
from llamagym_tui.runs.event_log import EventLog


def test_maps_of_random_and_of_optimal_play_have_their_exact_returns(tmp_path: Path) -> None:
    agent = BlackjackAgent()
    cells = [MapCell(words=agent.format_observation(state)) for state in STATES]
    panel = MapPanel(
        title="hands",
        rows=["all"],
        columns=["each"] * len(cells),
        row_name="",
        column_name="",
        cells=[cells],
    )
    best = optimal_policy()
    # Sampled, every hand is hit or not by a coin; greedy, as the optimal policy has it, by a hair.
    coins = [[0.5 - 1e-4, 0.5 + 1e-4] if best[state] else [0.5, 0.5] for state in STATES]
    certain = [[0.0, 0.8] if best[state] else [0.8, 0.0] for state in STATES]
    log = EventLog(tmp_path / "events.jsonl")
    log.append(PolicyMapLaidOut(panels=[panel], action_names=["stick", "hit"]))
    for update, shares in enumerate([coins, certain]):
        log.append(PolicyMapped(update=update, prompt_version=0, shares=shares))
    log.close()
    first, second = exact_returns(tmp_path)
    assert (first.update, second.update) == (0, 1)
    assert first.sampled == pytest.approx(-0.39, abs=0.01)
    assert first.greedy == pytest.approx(-0.0466, abs=1e-4)
    assert (second.sampled, second.greedy) == pytest.approx((-0.0466, -0.0466), abs=1e-4)
