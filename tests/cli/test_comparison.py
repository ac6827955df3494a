"""`compare`: pairs of episodes on the same seeds, one sentence, and the maps side by side."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import msgspec
import pytest

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.cli import comparison, headless
from llamagym_tui.cli.progress import Progress
from llamagym_tui.errors import UsageError
from llamagym_tui.settings import GenerationConfig, RunConfig
from llamagym_tui.trainer.builders import EVALUATION_SEED
from llamagym_tui.trainer.rollout.episode_counts import EpisodeCounts
from tests.cli.test_main import run


def test_an_endpoint_is_refused():
    refused = run("compare", "blackjack", "--b-model", "http://localhost:1/v1#small")
    assert refused.exit_code == 2
    assert "an endpoint plays in `eval`" in refused.stderr


def test_nothing_to_compare_is_refused():
    same = run("compare", "blackjack")
    assert (same.exit_code, same.stderr) == (
        2,
        "llamagym-tui: A and B are the same: give --b-model, --b-prompt-file or --b-temperature.\n",
    )


class Side:
    """A policy that is given: what each of its episodes earns, and whether its replies name an action."""

    plays: ClassVar[list[tuple[Any, ...]]] = []
    tokens = None

    def __init__(self, config: RunConfig, progress: Progress, other: Side | None = None) -> None:
        self.config, self.agent, self.prompt = config, BlackjackAgent(), config.system_prompt
        self.policy = SimpleNamespace(generation=None)
        self.loaded_beside = other

    def play(self, episodes: int, greedy: bool, *, seed: int, ended: list[EpisodeCounts]) -> bool:
        is_a = self.prompt == "Own."
        self.plays.append(("A" if is_a else "B", episodes, greedy, seed))
        for number in range(episodes):
            earned, actions = (-1.0, (1, 0)) if is_a else (1.0, (0, 1))
            unread = int(not is_a)
            ended.append(EpisodeCounts(earned, 1, unread, actions=actions, number=number))
        return True

    def close(self) -> None:
        self.plays.append(("closed", self.prompt))


class Mapper:
    def __init__(self, agent: object, policy: Any, laid_out: Any, clock: object) -> None:
        self.policy, self.laid_out = policy, laid_out

    def lay_out(self) -> None:
        self.laid_out("the hands")

    def under(self, prompt: str, version: int, update: int) -> list[str]:
        return [f"{prompt} at {self.policy.generation.temperature:g}, {version}, {update}"]


@pytest.fixture
def sides(monkeypatch: pytest.MonkeyPatch) -> tuple[RunConfig, RunConfig]:
    monkeypatch.setattr(Side, "plays", [])
    for module in (comparison, headless):
        monkeypatch.setattr(module, "Player", Side)
    monkeypatch.setattr(comparison, "PolicyMapper", Mapper)
    monkeypatch.setattr(comparison, "compared_maps", lambda layout, maps: [layout, *maps])
    a = RunConfig(agent="blackjack", run_dir="", system_prompt="Own.", seed=2)
    warm = GenerationConfig(temperature=0.5)
    return a, msgspec.structs.replace(a, system_prompt="Other.", generation=warm, model="big")


def test_a_person_gets_the_sentence_both_sides_and_the_maps(
    sides: tuple[RunConfig, RunConfig], capfd: pytest.CaptureFixture[str]
):
    assert comparison.compare(sides, greedy=True, half_width=0.5, most=3) == 0
    earned = "+2 ± 0 chips a hand (95 %, 3 pairs of episodes on the same seeds)"
    unread = "B's replies name no action in 100% of turns, so there the fallback plays."
    assert capfd.readouterr().out.splitlines() == [
        f"B takes stick 100% less often than A: {earned}. {unread}",
        "A  −1 ± 0 chips a hand · bundled, “Own.”",
        "B  +1 ± 0 chips a hand · big, “Other.”",
        *("the hands", "Own. at 1, 0, 0", "Other. at 0.5, 0, 0"),
    ]
    played = [("A", 3, True, EVALUATION_SEED + 2), ("B", 3, True, EVALUATION_SEED + 2)]
    assert Side.plays == [*played, ("closed", "Other."), ("closed", "Own.")]


def test_what_is_played_now_is_a_line_of_progress(
    sides: tuple[RunConfig, RunConfig],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("llamagym_tui.cli.progress.LINE_EVERY_S", 0.0)
    comparison.compare(sides, greedy=True, half_width=0.5, most=1)
    assert capfd.readouterr().err.splitlines() == ["A: 1 episode", "B: 1 episode"]


def test_different_games_are_not_compared(sides: tuple[RunConfig, RunConfig]):
    other = msgspec.structs.replace(sides[1], env={"sab": True})
    with pytest.raises(UsageError, match=r"play different games, {} and {'sab': True}: --env NAME"):
        comparison.compare((sides[0], other), greedy=True, half_width=None, most=2)


def test_two_prompts_are_compared_on_the_bundled_model(tmp_path: Path):
    prompt = tmp_path / "b.txt"
    prompt.write_text('You are playing Blackjack. Never hit. Reply with {"action": 0} to stick.')
    words = (
        "compare",
        "blackjack",
        "--b-prompt-file",
        str(prompt),
        "--episodes",
        "64",
        "--envs",
        "32",
        "--json",
    )
    result = run(*words)
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["pairs"] == found["a"]["episodes"] == 64
    assert found["b"]["system_prompt"] == prompt.read_text()
    assert found["difference"] == pytest.approx(
        found["b"]["mean_return"] - found["a"]["mean_return"]
    )
    assert [len(policy["shares"]) for policy in found["maps"]] == [280, 280]
