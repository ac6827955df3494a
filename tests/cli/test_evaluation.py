"""`eval`, `compare` and `match`: what is played, and how it is told."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import msgspec
import pytest

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.cli import evaluation
from llamagym_tui.cli.progress import Progress
from llamagym_tui.errors import UsageError
from llamagym_tui.protocol.events import EvaluationFinished, PromptChanged, SettingsChanged
from llamagym_tui.runs import run_store
from llamagym_tui.settings import GenerationConfig, RunConfig
from llamagym_tui.setup.play_config import evaluated_config
from llamagym_tui.trainer.builders import EVALUATION_SEED
from llamagym_tui.trainer.rollout.episode_counts import EpisodeCounts
from tests.cli.test_main import run
from tests.fake_parts import FakeBuilders

SAMPLES = {"generation": {"policy": "generate"}}
"""So that the agent is not asked for its actions: there is none."""


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[FakeBuilders]:
    """The fakes that stand where the real parts are built."""
    found: list[FakeBuilders] = []

    def build(config: RunConfig) -> FakeBuilders:
        found.append(FakeBuilders(config))
        return found[-1]

    monkeypatch.setattr(evaluation, "Builders", build)
    return found


def evaluate(agent: str, model: str, *, json_output: bool = False, **given: Any) -> None:
    config = evaluated_config(agent, model, {"seed": 7, "n_envs": 4, **given}, own=SAMPLES)
    evaluation.evaluate(config, episodes=10, greedy=True, json_output=json_output)


def test_an_evaluation_ends_with_one_line_of_json(
    built: list[FakeBuilders], capfd: pytest.CaptureFixture[str]
) -> None:
    evaluate("coin", "some-model", json_output=True)
    (line,) = capfd.readouterr().out.splitlines()
    figures = json.loads(line)
    expected = {"agent": "coin", "model": "some-model", "episodes": 10, "mean_return": -0.25}
    expected |= {"return_stderr": 0.01, "parse_failure_rate": 0.0, "refusal_rate": 0.0}
    assert figures | expected == figures
    assert built[0].made["evaluated"]["system_prompt"] == "Call the coin."
    assert (built[0].config.seed, built[0].config.n_envs) == (7, 4)


def test_an_evaluation_gives_a_person_its_confidence_interval(
    built: list[FakeBuilders], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = FakeBuilders.evaluate

    def refused(*parts: Any, **options: Any) -> EvaluationFinished:
        return msgspec.structs.replace(whole(*parts, **options), refusal_rate=0.125)

    monkeypatch.setattr(FakeBuilders, "evaluate", refused)
    evaluate("coin", "some-model")
    assert capfd.readouterr().out == (
        "Mean return −0.250 ± 0.020 over 10 episodes, greedy, prompt “Call the coin.”; "
        "0.0% of replies named no action; 12.5% named an action that was refused; 1 s.\n"
    )


@pytest.mark.parametrize("named", ["", "update-12"])
def test_a_run_folder_is_evaluated_under_the_prompt_of_its_end(
    tmp_path: Path, built: list[FakeBuilders], named: str
) -> None:
    played = {"max_turns": 9, "history": 2}
    trained = RunConfig(
        agent="coin",
        run_dir=str(tmp_path),
        **played,
        generation=GenerationConfig(temperature=0.5),
    )
    store = run_store.RunStore.create(trained)
    store.append(PromptChanged(prompt_version=1, system_prompt="Call tails."))
    store.append(SettingsChanged(changes={"generation.policy": "score"}))
    store.close()
    evaluate("coin", str(tmp_path / named))
    evaluate("coin", str(tmp_path / named), system_prompt="")
    evaluate("another", str(tmp_path / named))
    prompts = [each.made["evaluated"]["system_prompt"] for each in built]
    assert prompts == ["Call tails.", "", "Call the coin."]
    settings = built[0].config
    assert {name: getattr(settings, name) for name in played} == played
    assert settings.generation == GenerationConfig(temperature=0.5, policy="score")


def test_an_evaluation_has_what_is_given_and_trains_no_weights() -> None:
    usual = {"agent": "coin", "model": "some-model", "run_dir": "", "mode": "inference"}
    assert evaluated_config("coin", "some-model", own=SAMPLES) == RunConfig(
        **usual, dtype="float32", full_finetuning=True
    )
    given: dict[str, Any] = {"system_prompt": "Call.", "history": 2, "n_envs": 3}
    given |= {"seed": 4, "device": "cpu", "threads": 2, "dtype": "bfloat16", "env": {"size": 5}}
    assigned = {"max_turns": 6, "generation": {"max_new_tokens": 5, "temperature": 0.7}}
    found = evaluated_config("coin", "some-model", given | assigned, own=SAMPLES)
    sampling = GenerationConfig(max_new_tokens=5, temperature=0.7)
    assert found == RunConfig(
        **usual, **given, max_turns=6, generation=sampling, full_finetuning=None
    )


@pytest.mark.parametrize(
    ("spec", "follows"),
    [("two.py:One", True), ("two.py:Two", False), ("two.py", True), ("moved/two.py:One", False)],
)
def test_an_evaluation_follows_a_run_only_with_the_class_and_file_that_it_was_trained_with(
    tmp_path: Path, spec: str, follows: bool
) -> None:
    agent = f"{tmp_path / 'two.py'}:One"
    run_store.RunStore.create(
        RunConfig(agent=agent, run_dir=str(tmp_path / "run"), max_turns=9)
    ).close()
    found = evaluated_config(f"{tmp_path}/{spec}", str(tmp_path / "run"))
    assert (found.max_turns == 9) is follows


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--b-model", "http://localhost:1/v1#small"], "an endpoint plays in `eval`"),
        ([], "A and B are the same: give --b-model, --b-prompt-file or --b-temperature."),
    ],
)
def test_what_cannot_be_compared_is_refused(words: list[str], sentence: str) -> None:
    refused = run("compare", "blackjack", *words)
    assert refused.exit_code == 2
    assert sentence in refused.stderr


class Side:
    """A policy that is given: what each of its episodes earns, and whether its replies name an action."""

    plays: ClassVar[list[tuple[Any, ...]]] = []

    def __init__(self, config: RunConfig, progress: Progress, other: Side | None = None) -> None:
        self.config, self.agent, self.prompt = config, BlackjackAgent(), config.system_prompt
        self.policy = SimpleNamespace(generation=None)

    def play(self, *, episodes: int, greedy: bool, seed: int, ended: list[EpisodeCounts]) -> bool:
        is_a = self.prompt == "Own."
        self.plays.append(("A" if is_a else "B", episodes, greedy, seed))
        for number in range(episodes):
            earned = -1.0 if is_a else 1.0
            unread = int(not is_a)
            ended.append(EpisodeCounts(earned, 1, unread, number=number))
        return True


@pytest.fixture
def sides(monkeypatch: pytest.MonkeyPatch) -> tuple[RunConfig, RunConfig]:
    monkeypatch.setattr(Side, "plays", [])
    monkeypatch.setattr(evaluation, "Player", Side)
    a = RunConfig(agent="blackjack", run_dir="", system_prompt="Own.", seed=2)
    warm = GenerationConfig(temperature=0.5)
    return a, msgspec.structs.replace(a, system_prompt="Other.", generation=warm, model="big")


def test_a_person_gets_the_sentence_and_both_sides(
    sides: tuple[RunConfig, RunConfig], capfd: pytest.CaptureFixture[str]
) -> None:
    evaluation.compare(sides, greedy=True, half_width=0.5, most=3)
    earned = "+2 ± 0 chips a hand (95 %, 3 pairs of episodes on the same seeds)"
    unread = "B's replies name no action in 100% of turns, so there the fallback plays."
    assert capfd.readouterr().out.splitlines() == [
        f"B against A: {earned}. {unread}",
        "A  −1 ± 0 chips a hand · bundled, “Own.”",
        "B  +1 ± 0 chips a hand · big, “Other.”",
    ]
    assert Side.plays == [("A", 3, True, EVALUATION_SEED + 2), ("B", 3, True, EVALUATION_SEED + 2)]


def test_different_games_are_not_compared(sides: tuple[RunConfig, RunConfig]) -> None:
    other = msgspec.structs.replace(sides[1], env={"sab": True})
    with pytest.raises(UsageError, match=r"play different games, {} and {'sab': True}: --env NAME"):
        evaluation.compare((sides[0], other), greedy=True, half_width=None, most=2)


def test_two_prompts_are_compared_on_the_bundled_model(tmp_path: Path) -> None:
    prompt = tmp_path / "b.txt"
    prompt.write_text('You are playing Blackjack. Never hit. Reply with {"action": 0} to stick.')
    words = ("--b-prompt-file", str(prompt), "--episodes", "64", "--envs", "32", "--json")
    result = run("compare", "blackjack", *words)
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["pairs"] == found["a"]["episodes"] == 64
    assert found["b"]["system_prompt"] == prompt.read_text()
    difference = found["b"]["mean_return"] - found["a"]["mean_return"]
    assert found["difference"] == pytest.approx(difference)


RETURNS = {"player": [1.0, 0.0, 1.0], "opponent": [-1.0, 0.0, 0.0]}


def test_games_are_counted_for_a_on_equal_seeds_with_sides_swapped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    played: list[tuple[Any, ...]] = []

    def play(episodes: int, **options: Any) -> None:
        begins = options["env"]["begins"]
        played.append((episodes, options["seed"], begins, options["held_out"]))
        options["ended"] += [EpisodeCounts(episode_return=each) for each in RETURNS[begins]]

    player = SimpleNamespace(play=play, close=lambda: None)
    monkeypatch.setattr(evaluation, "Player", lambda config, progress: player)
    config = RunConfig(agent="tic_tac_toe", run_dir="", env={"opponent": "expert"})
    evaluation.match(config, "expert", episodes=5, greedy=False, json_output=True)
    found = json.loads(capsys.readouterr().out)
    seed = EVALUATION_SEED + config.seed
    assert played == [(3, seed, "player", False), (3, seed, "opponent", False)]
    assert found["sides"] == {
        "begins": {"won": 2, "drawn": 1, "lost": 0},
        "comes second": {"won": 0, "drawn": 2, "lost": 1},
    }
    assert [found[name] for name in ("won", "drawn", "lost")] == [2, 3, 1]
    assert found["not_lost"] == pytest.approx(5 / 6)
    evaluation.match(config, "expert", episodes=5, greedy=False)
    printed = capsys.readouterr().out
    assert "A has not lost 83.3% of 6 games, sampled: 2 won, 3 drawn, 1 lost" in printed
    assert "A begins: 2 won, 1 drawn, 0 lost." in printed
    assert printed.splitlines()[-1] == "B  expert"
