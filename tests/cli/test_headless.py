"""`train` and `eval` without a screen, on fakes: one line on stdout, everything else elsewhere."""

from __future__ import annotations

import io
import json
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from llamagym_tui import run_store
from llamagym_tui.cli import headless
from llamagym_tui.cli.progress import Progress
from llamagym_tui.config import GenerationConfig, RunConfig
from llamagym_tui.errors import LlamaGymError, RunStoreError
from llamagym_tui.protocol.events import (
    EpisodesCounted,
    EvaluationCancelled,
    Event,
    PhaseChanged,
    PromptChanged,
    RolledBack,
    SettingsChanged,
    SettingsMeasured,
    UpdateFinished,
    WarningRaised,
)
from llamagym_tui.returns import MeanReturn
from llamagym_tui.setup.play_config import evaluated_config
from llamagym_tui.trainer import builders, session
from tests import fakes
from tests.fake_parts import Clock, FakeBuilders, Rollout, made_up_stats
from tests.state.test_warm_start import FINISHED

SAMPLES = {"generation": {"policy": "generate"}}
"""So that the agent is not asked for its actions: there is none."""


class Stagehand:
    """Puts fakes where the real parts are built."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.faults: dict[str, Exception] = {}
        self.built: list[FakeBuilders] = []
        self.before_step: Any = lambda rollout: None
        monkeypatch.setattr(session, "Builders", self.build)
        monkeypatch.setattr(builders, "Builders", self.build)

    def build(self, config: RunConfig) -> FakeBuilders:
        self.built.append(FakeBuilders(config, faults=self.faults, before_step=self.before_step))
        return self.built[-1]


@pytest.fixture
def stagehand(monkeypatch: pytest.MonkeyPatch) -> Stagehand:
    return Stagehand(monkeypatch)


def config(run_dir: Path, **settings: Any) -> RunConfig:
    return RunConfig(agent="coin", run_dir=str(run_dir), **settings)


def test_training_ends_with_one_line_of_json(
    tmp_path: Path, stagehand: Stagehand, capfd: pytest.CaptureFixture[str]
) -> None:
    assert headless.train(config(tmp_path, episodes=20, seed=3), json_output=True) == 0
    (line,) = capfd.readouterr().out.splitlines()
    figures = json.loads(line)
    assert figures == {
        "agent": "coin",
        "model": "coin-model",
        "seed": 3,
        "episodes": 20,
        "env_steps": 20,
        "updates": 2,
        "elapsed_s": figures["elapsed_s"],
        "episodes_per_s": figures["episodes_per_s"],
        "dropped": 0,
        "evaluation": {
            "episodes": 200,
            "mean_return": -0.25,
            "return_stderr": 0.01,
            "half_width_95": pytest.approx(0.0196),
            "policy": "sampled",
            "parse_failure_rate": 0.0,
            "refusal_rate": 0.0,
            "truncated": 0,
            "dropped": 0,
        },
        # 0.5 / sqrt(8 - 1), of the fake's 8 episodes an update
        "last_update": {
            "update": 2,
            "episodes": 8,
            "mean_return": 0.5,
            "return_stderr": pytest.approx(0.18898, abs=1e-5),
            "half_width_95": pytest.approx(0.37041, abs=1e-5),
        },
        "run_dir": str(tmp_path),
    }
    evaluation = stagehand.built[0].made["evaluated"]
    assert (evaluation["greedy"], evaluation["limit_s"]) == (False, 30.0)


def test_without_json_it_ends_with_a_sentence(
    tmp_path: Path, stagehand: Stagehand, capfd: pytest.CaptureFixture[str]
) -> None:
    headless.train(config(tmp_path, episodes=20))
    out, err = capfd.readouterr()
    assert "warning" not in err
    assert out.startswith(
        "20 episodes and 2 updates in 0 s. "
        "The policy now: mean return -0.250 ± 0.020 (95 %) over 200 sampled episodes on other seeds. "
        "Before its last update: 0.50 ± 0.37 (95 %) over the 8 episodes of that batch. "
    )
    assert str(tmp_path) in out


def test_another_process_of_torchruns_follows_the_first_and_leaves_no_folder(
    tmp_path: Path, stagehand: Stagehand, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    follows: list[tuple[int, int]] = []
    for name, value in (("TORCHELASTIC_RUN_ID", "x"), ("RANK", "2"), ("WORLD_SIZE", "4")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(
        "llamagym_tui.trainer.ranks.follow", lambda *numbers: follows.append(numbers)
    )
    (tmp_path / "run").mkdir()
    assert headless.train(config(tmp_path / "run")) == 0
    assert follows == [(1, 4)]
    assert not (tmp_path / "run").exists()
    assert (capfd.readouterr().out, stagehand.built) == ("", [])


def test_an_unknown_failure_names_the_log_that_has_its_traceback(
    tmp_path: Path, stagehand: Stagehand
) -> None:
    stagehand.faults["model"] = ZeroDivisionError("division by zero")
    with pytest.raises(LlamaGymError, match=r"ZeroDivisionError.*trainer\.log has the traceback"):
        headless.train(config(tmp_path, episodes=4))


def test_a_folder_that_holds_a_run_is_refused(tmp_path: Path, stagehand: Stagehand) -> None:
    headless.train(config(tmp_path, episodes=4))
    with pytest.raises(RunStoreError, match="already holds a run"):
        headless.train(config(tmp_path, episodes=4))


def test_ctrl_c_ends_a_run_with_its_checkpoint_and_its_line(
    tmp_path: Path, stagehand: Stagehand, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupt(rollout: Rollout) -> None:
        if rollout.episodes == 6:
            signal.raise_signal(signal.SIGINT)

    stagehand.before_step = interrupt
    handler = signal.getsignal(signal.SIGINT)
    assert headless.train(config(tmp_path), json_output=True) == 0
    assert json.loads(capfd.readouterr().out)["episodes"] == 8
    assert [saved["episodes"] for saved in stagehand.built[0].saved][-1] == 8
    assert signal.getsignal(signal.SIGINT) is handler


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="hang-ups are POSIX")
def test_hang_ups_end_a_run_with_its_checkpoint_however_many_come(
    tmp_path: Path, stagehand: Stagehand
) -> None:
    def hang_up(rollout: Rollout) -> None:
        if rollout.episodes == 6:
            signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGHUP)

    stagehand.before_step = hang_up
    before = signal.signal(
        signal.SIGHUP, signal.SIG_DFL
    )  # the tests themselves may run under nohup
    try:
        assert headless.train(config(tmp_path)) == 0
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)
    assert [saved["episodes"] for saved in stagehand.built[0].saved][-1] == 8


def evaluated(agent: str, model: str, **settings: Any) -> None:
    printed = {
        "json_output": settings.pop("json_output", False),
        "greedy": settings.pop("greedy", True),
    }
    own = settings.pop("own", SAMPLES)
    config = evaluated_config(agent, model, {"seed": 7, "n_envs": 4, **settings}, own=own)
    headless.evaluate(config, episodes=10, **printed)


def test_an_evaluation_ends_with_one_line_of_json(
    stagehand: Stagehand, capfd: pytest.CaptureFixture[str]
) -> None:
    evaluated("coin", "some-model", json_output=True)
    (line,) = capfd.readouterr().out.splitlines()
    assert json.loads(line) == {
        "agent": "coin",
        "model": "some-model",
        "episodes": 10,
        "mean_return": -0.25,
        "return_stderr": 0.01,
        "parse_failure_rate": 0.0,
        "refusal_rate": 0.0,
        "truncated": 0,
        "dropped": 0,
        "elapsed_s": 1.0,
    }
    assert stagehand.built[0].made["evaluated"]["system_prompt"] == "Call the coin."
    assert (stagehand.built[0].config.seed, stagehand.built[0].config.n_envs) == (7, 4)


def test_an_evaluation_gives_a_person_its_confidence_interval(
    stagehand: Stagehand, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluated("coin", "some-model")
    play = "Mean return -0.2500 ± 0.0196 (95 %) over 10 episodes, greedy, prompt “Call the coin.”"
    assert capfd.readouterr().out == f"{play}; 0.0% of replies named no action; 1 s.\n"
    assert headless.return_text(MeanReturn(1.0, 0.0, 1), 3) == "1"
    whole = FakeBuilders.evaluate
    monkeypatch.setattr(
        FakeBuilders,
        "evaluate",
        lambda *parts, **options: msgspec.structs.replace(
            whole(*parts, **options), refusal_rate=0.125, greedy=False
        ),
    )
    evaluated("coin", "some-model", greedy=False)
    play = play.replace("greedy", "sampled")
    refused = "0.0% of replies named no action; 12.5% named an action that was refused"
    assert capfd.readouterr().out == f"{play}; {refused}; 1 s.\n"


@pytest.mark.parametrize("named", ["", "model", "good", "update-12"])
def test_a_run_folder_is_evaluated_under_the_prompt_of_its_end(
    tmp_path: Path, stagehand: Stagehand, capfd: pytest.CaptureFixture[str], named: str
) -> None:
    played = {"max_turns": 9, "history": 2}
    trained = config(tmp_path, **played, generation=GenerationConfig(temperature=0.5))
    store = run_store.RunStore.create(trained)
    store.append(PromptChanged(prompt_version=1, system_prompt="Call tails."))
    store.append(SettingsChanged(changes={"generation.policy": "score"}))
    store.close()
    evaluated("coin", str(tmp_path / named))
    evaluated("coin", str(tmp_path / named), system_prompt="")
    evaluated("another", str(tmp_path / named))
    prompts = [built.made["evaluated"]["system_prompt"] for built in stagehand.built]
    assert prompts == ["Call tails.", "", "Call the coin."]
    settings = stagehand.built[0].config
    assert {name: getattr(settings, name) for name in played} == played
    assert settings.generation == GenerationConfig(temperature=0.5, policy="score")


def test_an_evaluation_has_what_is_given_and_trains_no_weights() -> None:
    usual = {"agent": "coin", "model": "some-model", "run_dir": "", "mode": "inference"}
    assert evaluated_config("coin", "some-model", own=SAMPLES) == RunConfig(
        **usual, dtype="float32", full_finetuning=True
    )
    given: dict[str, Any] = {
        "base": "/base",
        "system_prompt": "Call.",
        "history": 2,
        "n_envs": 3,
        "seed": 4,
        "device": "cpu",
        "threads": 2,
        "dtype": "bfloat16",
        "env": {"size": 5},
    }
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


def counted(episodes: int) -> EpisodesCounted:
    return EpisodesCounted(
        returns=[1.0, 0.0], lengths=[1, 1], mode="train", prompt_version=0,
        episodes=episodes, env_steps=episodes, episodes_per_s=50.0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("seconds", "episodes"), [(30, (500, 1000, 1500)), (33, (500, 1000, 1500, 1650))]
)
def test_without_a_terminal_progress_is_a_line_every_ten_seconds_and_the_last_figures_once(
    seconds: int, episodes: tuple[int, ...]
) -> None:
    stream, clock = io.StringIO(), Clock()
    with Progress(stream, episodes=1000, clock=clock) as progress:
        progress.take(PhaseChanged(phase="loading", detail="loading the model"))
        for second in range(1, seconds + 1):
            clock.now += 1
            progress.take(counted(second * 50))
    figures = [f"{count:,} episodes, mean return 0.500, 0 updates, 50/s" for count in episodes]
    assert stream.getvalue().splitlines() == ["loading the model", *figures]


NOTICES: list[Event] = [
    msgspec.structs.replace(fakes.run_started(), trained="128 weights of an adapter"),
    WarningRaised(message="The disk is nearly full."),
    RolledBack(update=7, reason="requested"),
    SettingsMeasured(values={"ppo.gamma": 0.99}, reasons={"ppo.gamma": "discount 0.99: long"}),
    EvaluationCancelled(played=1, episodes=9),
    EvaluationCancelled(played=1, episodes=9, why="It took too long."),
    FINISHED,
]


NOTICES_IN_WORDS = [
    "trained: 128 weights of an adapter",
    "warning: The disk is nearly full.",
    "rolled back to update 7: requested",
    "measured: discount 0.99: long",
    "warning: It took too long.",
    "warm start: ",
]


@pytest.mark.parametrize("kind", ["lines", "bar"])
def test_what_a_person_should_not_miss_is_shown_at_once(kind: str) -> None:
    stream = io.StringIO() if kind == "lines" else Terminal()
    with Progress(stream, clock=Clock()) as progress:
        for event in NOTICES:
            progress.take(event)
    lines = stream.getvalue().splitlines()
    if kind == "lines":
        assert len(lines) == len(NOTICES_IN_WORDS)
        assert all(map(str.startswith, lines, NOTICES_IN_WORDS))
        return
    seen = " ".join(stream.getvalue().split())  # a terminal wraps
    assert all(words in seen for words in NOTICES_IN_WORDS)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_progress_is_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    stats = made_up_stats()
    seen: list[Event] = [
        counted(500),
        UpdateFinished(update=3, episodes=500, stats=stats),
        counted(1000),
    ]
    with Progress(stream, episodes=1000) as progress:
        for event in seen:
            progress.take(event)
        (task,) = progress._bar.tasks
        assert (task.completed, task.total) == (1000, 1000)
        assert task.description == "1,000 episodes, mean return 0.500, 3 updates, 50/s"
        progress.show("stopping [not a style]")
    assert "━" in stream.getvalue()
    assert "stopping [not a style]" in stream.getvalue()
