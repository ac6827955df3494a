"""`compare`: pairs of episodes on the same seeds, one sentence, and the maps side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.cli.comparison import Pairs, played, sentence, side_by_side
from llamagym_tui.screens.policy_map.mapped_policy import MappedPolicy
from llamagym_tui.trainer.rollout.episode_counts import EndedEpisode
from tests.cli.test_main import run
from tests.screens.map_events import hitting, layout_of


def hand(number: int, value: float, sticks: int, hits: int) -> EndedEpisode:
    return EndedEpisode(value, sticks + hits, 0, "inference", 0, 0, (sticks, hits), number=number)


class Scripted:
    """A player whose hand of a seed earns what the test says; it loses some hands altogether."""

    def __init__(self, earns: Any, dropped: tuple[int, ...] = ()) -> None:
        self.earns, self.dropped, self.asked = earns, dropped, []

    def play(self, episodes: int, greedy: bool, *, seed: int, ended: list[EndedEpisode]) -> None:
        self.asked.append((episodes, seed))
        ended += [hand(n, self.earns(n), 1, 0) for n in reversed(range(episodes)) if n not in self.dropped]


def pairs_of(a: Scripted, b: Scripted, enough: float, most: int = 10_000) -> Pairs:
    return played((a, b), True, enough, most, lambda text: None)  # type: ignore[arg-type]


def test_episodes_are_paired_by_their_seed_and_one_that_failed_has_no_pair():
    pairs = pairs_of(Scripted(lambda n: n % 7, (3,)), Scripted(lambda n: n % 7 + 0.5), 0.1)
    assert [each.number for each in pairs.a] == [each.number for each in pairs.b]
    assert 3 not in [each.number for each in pairs.a]
    assert pairs.difference == (0.5, 0.0, 255)


def test_as_many_are_played_as_the_interval_needs():
    # Differences of ±1 have a standard deviation of 1: ±0.05 takes (1.96 / 0.05)² = 1,537 pairs, and a tenth more.
    a, b = Scripted(lambda n: 0.0), Scripted(lambda n: 1.0 if n % 2 else -1.0)
    pairs = pairs_of(a, b, 0.05)
    assert a.asked == b.asked == [(256, 0), (1441, 1)]
    assert 1.96 * pairs.difference.stderr < 0.05


def test_no_more_are_played_than_is_allowed():
    a, b = Scripted(lambda n: 0.0), Scripted(lambda n: 1.0 if n % 2 else -1.0)
    assert len(pairs_of(a, b, 0.001, most=300).a) == 300
    assert "not yet ± 0.001" in sentence(("stick", "hit"), pairs_of(a, b, 0.001, most=300), "", 0.001)


def test_one_sentence_has_what_is_done_otherwise_and_what_it_earns():
    a = [hand(n, -1.0, 1, 2) for n in range(4)]
    b = [hand(n, value, 2, 1) for n, value in enumerate((-1.0, 0.0, 0.0, 1.0))]
    # Differences 0, 1, 1, 2: mean 1, deviation √(2/3), standard error 0.408; of three turns, two hits become one.
    found = sentence(("stick", "hit"), Pairs(a, b), "chips a hand", 1.0)
    assert found == (
        "B takes stick 100% more often: +1.000 ± 0.800 chips a hand (95 %, 4 pairs of episodes on the same seeds)."
    )
    assert "which may be chance" in sentence(("stick", "hit"), Pairs(a, [*a[:3], b[3]]), "", 5.0)


def test_maps_stand_side_by_side_with_what_differs():
    layout = layout_of(BlackjackAgent())
    timid, bold = (MappedPolicy(layout, hitting(threshold, update=1)) for threshold in (11.5, 12.5))
    lines = list(side_by_side(timid, bold))
    [row] = [line for line in lines if line.startswith("  12")][:1]
    assert row.split() == ["12", *"SSSSSSSSSS", *"HHHHHHHHHH", *"HHHHHHHHHH"]
    [row] = [line for line in lines if line.startswith("  13")][:1]
    assert row.split() == ["13", *"SSSSSSSSSS", *"SSSSSSSSSS", *"··········"]


def test_nothing_to_compare_is_refused():
    same = run("compare", "blackjack")
    assert (same.exit_code, same.stderr) == (
        2,
        "llamagym-tui: A and B are the same: give --b-model, --b-prompt-file or --b-temperature.\n",
    )


def test_two_prompts_are_compared_on_the_bundled_model(tmp_path: Path):
    prompt = tmp_path / "b.txt"
    prompt.write_text('You are playing Blackjack. Never hit. Reply with {"action": 0} to stick.')
    words = ("compare", "blackjack", "--b-prompt-file", str(prompt), "--episodes", "64", "--envs", "32", "--json")
    result = run(*words)
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["pairs"] == 64
    assert found["B"]["system_prompt"] == prompt.read_text()
    assert found["difference"] == pytest.approx(found["B"]["mean_return"] - found["A"]["mean_return"])
    assert len(found["agreeing_states"]) == 2
