"""`compare`: pairs of episodes on the same seeds, one sentence, and the maps side by side."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import msgspec
import pytest

from llamagym_tui import model_registry
from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.cli import comparison, headless
from llamagym_tui.cli.headless import Played
from llamagym_tui.cli.progress import Progress
from llamagym_tui.config import GenerationConfig, PPOConfig, RunConfig
from llamagym_tui.errors import UsageError
from llamagym_tui.run_store import RunStore
from llamagym_tui.trainer.builders import EVALUATION_SEED
from llamagym_tui.trainer.rollout.episode_counts import EpisodeCounts
from tests.cli.test_main import run


def test_nothing_to_compare_is_refused():
    same = run("compare", "blackjack")
    assert (same.exit_code, same.stderr) == (
        2,
        "llamagym-tui: A and B are the same: give --b-model, --b-prompt-file, --b-temperature or --b-learner.\n",
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


def test_in_json_a_side_that_names_no_action_is_warned_of_beside_it(
    sides: tuple[RunConfig, RunConfig], capfd: pytest.CaptureFixture[str]
):
    comparison.compare(sides, greedy=False, half_width=None, most=2, json_output=True)
    printed = capfd.readouterr()
    found = json.loads(printed.out)
    assert (found["agent"], found["models"]) == ("blackjack", ["bundled", "big"])
    # A tenth of the way from the random player to the optimal one, -0.396 to -0.0466.
    assert found["enough"] == pytest.approx(0.03494)
    assert (found["a"]["greedy"], found["shares"]) == (False, [[1.0, 0.0], [0.0, 1.0]])
    assert printed.err.splitlines()[-1] == (
        "warning: B's replies name no action in 100% of turns, so there the fallback plays."
    )


def test_the_command_gives_b_what_it_has_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    calls: list[Any] = []
    monkeypatch.setattr(
        comparison, "compare", lambda *parts, **given: calls.append((*parts, given)) or 4
    )
    monkeypatch.setattr(model_registry, "require_model", lambda name: None)  # some/one is no model
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"Prompt of {name}.\n")
    shared = (
        "--prompt-file",
        str(tmp_path / "a"),
        "--envs",
        "3",
        "--seed",
        "9",
        "--env",
        "sab=true",
    )
    of_b = (
        "--b-model",
        "some/one",
        "--b-prompt-file",
        str(tmp_path / "b"),
        "--b-temperature",
        "0.5",
    )
    assert run("compare", "blackjack", *shared, *of_b, "--half-width", "0.25").exit_code == 4
    assert run("compare", "blackjack", *shared, "--episodes", "8", "--json").exit_code == 4
    (first, given), (second, given_second) = calls
    played = [
        (
            each.model,
            each.system_prompt,
            each.n_envs,
            each.seed,
            each.env,
            each.generation.temperature,
        )
        for each in first
    ]
    same = (3, 9, {"sab": True})
    assert played == [
        ("bundled", "Prompt of a.", *same, 1.0),
        ("some/one", "Prompt of b.", *same, 0.5),
    ]
    usual = {"debug": False, "json_output": False, "most": 20_000}
    assert given == {**usual, "greedy": False, "half_width": 0.25}
    assert given_second == {
        **usual,
        "greedy": True,
        "half_width": None,
        "json_output": True,
        "most": 8,
    }
    assert second[0] == second[1] == first[0]


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


def test_a_runs_policy_and_those_of_its_checkpoints_have_the_learner_of_the_run(tmp_path: Path):
    folder = tmp_path / "run"
    RunStore.create(
        RunConfig(agent="blackjack", run_dir=str(folder), ppo=PPOConfig(learner="grpo"))
    )
    (folder / "events.jsonl").touch()
    assert (
        comparison.learner_of(str(folder))
        == comparison.learner_of(str(folder / "update-3"))
        == "grpo"
    )
    assert comparison.learner_of("bundled") is None


def test_two_learners_are_trained_on_equal_minutes_of_a_processor_and_their_runs_compared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("LLAMAGYM_TUI_DATA", str(tmp_path))
    played: list[Any] = []

    def play_session(config: RunConfig, summary: Any, commands: Any, **given: Any) -> Played:
        RunStore.create(config)
        (Path(config.run_dir) / "events.jsonl").touch()
        played.append((config, given["clock"]))
        summary.sentence = lambda: "Played."
        reached = "" if config.ppo.learner == ends_early else "60 of 60 s"
        return Played(SimpleNamespace(active_run=SimpleNamespace(limit_reached=reached)), None)

    compared: list[Any] = []
    monkeypatch.setattr(comparison, "play_session", play_session)
    monkeypatch.setattr(comparison, "compare", lambda sides, **given: compared.append(sides) or 0)
    monkeypatch.setattr(model_registry, "require_model", lambda name: None)  # none is written
    words = ("compare", "blackjack", "--learner", "ppo", "--b-learner", "grpo")
    more = ("--minutes", "1", "--seed", "4", "--envs", "3", "--set", "ppo.batch_size=64")
    ends_early = ""
    result = run(*words, *more)
    assert result.exit_code == 0, result.stderr
    runs = [config for config, _ in played]
    assert [each.ppo.learner for each in runs] == ["ppo", "grpo"]
    assert {each.minutes for each in runs} == {1.0}
    # Nothing else differs; and of how many environments an evaluation has, training knows nothing.
    same = [
        msgspec.structs.replace(each, run_dir="", ppo=PPOConfig(batch_size=64)) for each in runs
    ]
    assert same[0] == same[1]
    assert (same[0].seed, same[0].n_envs) == (4, 128)
    assert {clock for _, clock in played} == {time.process_time}
    ((a, b),) = compared
    assert [a.model, b.model] == [each.run_dir for each in runs]
    assert (a.n_envs, a.seed) == (b.n_envs, b.seed) == (3, 4)
    assert result.stderr.splitlines()[:2] == ["A learns by PPO.", "A, by PPO: Played."]

    ends_early = "grpo"
    stopped = run(*words)
    assert (stopped.exit_code, stopped.stderr.splitlines()[-1]) == (1, "llamagym-tui: Interrupted.")
    assert len(compared) == 1


@pytest.mark.parametrize(
    "words",
    [
        ["--learner", "ppo"],
        ["--b-learner", "ppo"],
        ["--learner", "ppo", "--b-learner", "ppo"],
        ["--learner", "ppo", "--b-learner", "grpo", "--b-temperature", "0.5"],
        ["--learner", "ppo", "--b-learner", "grpo", "--b-model", "some/one"],
    ],
)
def test_two_learners_and_nothing_else_are_compared(words: list[str]):
    refused = run("compare", "blackjack", *words)
    assert refused.exit_code == 2
    assert "name both, with --learner and --b-learner" in refused.stderr
