"""`train`, `sft` and `dpo` without a screen, on fakes: one line on stdout, everything else elsewhere."""

from __future__ import annotations

import io
import json
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from llamagym_tui.cli import training
from llamagym_tui.cli.progress import Progress
from llamagym_tui.demos import files as demo_files
from llamagym_tui.errors import LlamaGymError
from llamagym_tui.protocol.events import (
    CheckpointSaved,
    EpisodesCounted,
    EvaluationCancelled,
    EvaluationFinished,
    Event,
    PhaseChanged,
    RolledBack,
    RunFinished,
    SettingsMeasured,
    UpdateFinished,
    WarmStartFinished,
    WarningRaised,
)
from llamagym_tui.runs import run_store
from llamagym_tui.settings import RunConfig, WarmStartStats
from llamagym_tui.trainer import session_base
from tests import fakes
from tests.fake_parts import Clock, FakeBuilders, Rollout, made_up_stats
from tests.state.test_pending import FINISHED
from tests.trainer.test_warm_start import call


class Stagehand:
    """Puts fakes where the real parts are built."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.faults: dict[str, Exception] = {}
        self.built: list[FakeBuilders] = []
        self.before_step: Any = lambda rollout: None
        monkeypatch.setattr(session_base, "Builders", self.build)

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
    training.train(config(tmp_path, episodes=20, seed=3), json_output=True)
    (line,) = capfd.readouterr().out.splitlines()
    figures = json.loads(line)
    whole = {"agent": "coin", "model": "coin-model", "seed": 3, "run_dir": str(tmp_path)}
    whole |= {"episodes": 20, "env_steps": 20, "updates": 2}
    assert figures | whole == figures
    assert figures["evaluation"]["episodes"] == 200
    assert figures["evaluation"]["mean_return"] == -0.25
    assert figures["last_update"]["mean_return"] == 0.5
    evaluation = stagehand.built[0].made["evaluated"]
    assert (evaluation["greedy"], evaluation["limit_s"]) == (False, 30.0)


def test_without_json_it_ends_with_a_sentence(
    tmp_path: Path, stagehand: Stagehand, capfd: pytest.CaptureFixture[str]
) -> None:
    training.train(config(tmp_path, episodes=20))
    out, err = capfd.readouterr()
    assert "warning" not in err
    assert out == (
        "20 episodes and 2 updates in 0 s. "
        "The policy now: mean return −0.250 ± 0.020 over 200 sampled episodes on other seeds. "
        "Before its last update: +0.50 ± 0.37 over the 8 episodes of that batch. "
        f"The run is in {tmp_path}\n"
    )


def test_another_process_of_torchruns_follows_the_first_and_leaves_no_folder(
    tmp_path: Path, stagehand: Stagehand, monkeypatch: pytest.MonkeyPatch
) -> None:
    follows: list[tuple[int, int]] = []
    for name, value in (("TORCHELASTIC_RUN_ID", "x"), ("RANK", "2"), ("WORLD_SIZE", "4")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(
        "llamagym_tui.trainer.ranks.follow", lambda *numbers: follows.append(numbers)
    )
    (tmp_path / "run").mkdir()
    training.train(config(tmp_path / "run"))
    assert follows == [(1, 4)]
    assert not (tmp_path / "run").exists()
    assert stagehand.built == []


def test_an_unknown_failure_names_the_log_that_has_its_traceback(
    tmp_path: Path, stagehand: Stagehand
) -> None:
    stagehand.faults["model"] = ZeroDivisionError("division by zero")
    with pytest.raises(LlamaGymError, match=r"ZeroDivisionError.*trainer\.log has the traceback"):
        training.train(config(tmp_path, episodes=4))


@pytest.mark.parametrize("name", ["SIGINT", "SIGHUP"])
def test_ctrl_c_or_hang_ups_end_a_run_with_its_checkpoint_and_its_line(
    tmp_path: Path, stagehand: Stagehand, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    number = getattr(signal, name)

    def interrupt(rollout: Rollout) -> None:
        if rollout.episodes == 6:
            signal.raise_signal(number)
            if name == "SIGHUP":  # they come twice
                signal.raise_signal(number)

    stagehand.before_step = interrupt
    # The tests themselves may run under nohup.
    handler = signal.default_int_handler if name == "SIGINT" else signal.SIG_DFL
    before = signal.signal(number, handler)
    try:
        training.train(config(tmp_path), json_output=True)
        assert signal.getsignal(number) is handler
    finally:
        signal.signal(number, before)
    captured = capfd.readouterr()
    assert json.loads(captured.out)["episodes"] == 8
    assert "stopping; what was learnt is saved first" in captured.err
    assert [saved["episodes"] for saved in stagehand.built[0].saved][-1] == 8


@pytest.fixture
def taught(tmp_path: Path, stagehand: Stagehand) -> RunConfig:
    """A run with three demonstrations."""
    path = tmp_path / "coin.jsonl"
    demo_files.write(path, [call(seed) for seed in range(3)])
    return config(tmp_path / "run", sft_data=str(path))


def seen(config: RunConfig, *kinds: type) -> list[type]:
    events = run_store.read_events(config.run_dir)
    return [type(event) for event in events if isinstance(event, kinds)]


def test_a_warm_start_evaluates_before_and_after_and_plays_nothing_for_the_run(
    taught: RunConfig, capfd: pytest.CaptureFixture[str]
) -> None:
    training.warm_start(taught, episodes=10, json_output=True)
    figures = json.loads(capfd.readouterr().out)
    assert (figures["method"], figures["sft_data"]) == ("sft", taught.sft_data)
    assert figures["facts"]["episodes"] == figures["trained"]["demonstrations"] == 3
    assert figures["trained"]["last_loss"] == 0.25
    played = [figures[each] for each in ("before", "after")]
    assert [(each["episodes"], each["mean_return"]) for each in played] == [(10, -0.25)] * 2
    kinds = (EvaluationFinished, WarmStartFinished, RunFinished)
    assert seen(taught, *kinds) == [
        EvaluationFinished,
        WarmStartFinished,
        EvaluationFinished,
        RunFinished,
    ]
    assert (Path(taught.run_dir) / "model").is_dir()


def test_without_episodes_it_only_trains_and_shows_how_to_go_on(
    taught: RunConfig, capfd: pytest.CaptureFixture[str]
) -> None:
    training.warm_start(taught, episodes=0)
    assert capfd.readouterr().out == (
        "3 demonstrations, trained in 4 steps and 2 s; loss 1.000 → 0.250. "
        f"Resume with `llamagym-tui train --resume --run-dir {taught.run_dir}`.\n"
    )
    assert seen(taught, EvaluationFinished) == []


def test_ctrl_c_amid_the_training_keeps_what_it_has_learnt(
    taught: RunConfig, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = FakeBuilders.warm_start

    def warm_start(self: FakeBuilders, *parts: Any, **options: Any) -> WarmStartStats:
        self.made["before_sft_step"] = lambda step: (
            signal.raise_signal(signal.SIGINT) if step == 2 else None
        )
        return whole(self, *parts, **options)

    monkeypatch.setattr(FakeBuilders, "warm_start", warm_start)
    training.warm_start(taught, episodes=0)
    out = capfd.readouterr().out
    assert "cancelled" in out
    assert "Resume with" in out
    assert seen(taught, CheckpointSaved) == [CheckpointSaved, CheckpointSaved]


def test_ctrl_c_in_the_evaluation_before_trains_nothing(
    taught: RunConfig, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = FakeBuilders.evaluate

    def evaluate(self: FakeBuilders, *parts: Any, **options: Any) -> EvaluationFinished | None:
        signal.raise_signal(signal.SIGINT)
        return None if options["should_stop"]() else whole(self, *parts, **options)

    monkeypatch.setattr(FakeBuilders, "evaluate", evaluate)
    training.warm_start(taught, episodes=10)
    assert capfd.readouterr().out.startswith(
        f"Nothing was trained: the run in {taught.run_dir} has"
    )
    assert seen(taught, WarmStartFinished) == []


def counted(episodes: int) -> EpisodesCounted:
    return EpisodesCounted(
        returns=[1.0, 0.0], lengths=[1, 1], mode="train", prompt_version=0,
        episodes=episodes, env_steps=episodes, episodes_per_s=50.0,
    )  # fmt: skip


def test_without_a_terminal_progress_is_a_line_every_ten_seconds_and_the_last_figures() -> None:
    stream, clock = io.StringIO(), Clock()
    with Progress(stream, episodes=2000, clock=clock) as progress:
        progress.take(PhaseChanged(phase="loading", detail="loading the model"))
        progress.take(UpdateFinished(update=3, episodes=0, stats=made_up_stats()))
        for second in range(1, 34):
            clock.now += 1
            progress.take(counted(second * 50))
    rest = "of 2,000 episodes, mean return 0.500, 3 updates, 50/s"
    figures = [f"{count:,} {rest}" for count in (500, 1000, 1500, 1650)]
    assert stream.getvalue().splitlines() == ["loading the model", *figures]


def test_minutes_of_play_are_counted_from_its_beginning() -> None:
    stream, clock = io.StringIO(), Clock()
    with Progress(stream, minutes=2, clock=clock) as progress:
        progress.take(PhaseChanged(phase="loading", detail="loading the model"))
        clock.now += 60
        progress.take(PhaseChanged(phase="rolling_out"))
        clock.now += 30
        progress.take(counted(50))
    assert "50 episodes in 0.5 of 2 minutes" in stream.getvalue()


NOTICES: list[Event] = [
    msgspec.structs.replace(fakes.run_started(), trained="128 weights of an adapter"),
    WarningRaised(message="The disk is nearly [full]."),
    RolledBack(update=7, reason="requested"),
    SettingsMeasured(values={"ppo.gamma": 0.99}, reasons={"ppo.gamma": "discount 0.99: long"}),
    EvaluationCancelled(played=1, episodes=9),
    EvaluationCancelled(played=1, episodes=9, why="It took too long."),
    FINISHED,
]


NOTICES_IN_WORDS = [
    "trained: 128 weights of an adapter",
    "warning: The disk is nearly [full].",
    "rolled back to update 7: requested",
    "measured: discount 0.99: long",
    "warning: It took too long.",
    "warm start: ",
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_on_a_terminal_does_not_take_the_prints_of_libraries_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    before = (sys.stdout, sys.stderr)
    with Progress(Terminal(), clock=Clock()):
        assert (sys.stdout, sys.stderr) == before


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_what_a_person_should_not_miss_is_a_line_that_stays(
    kind: type[io.StringIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = kind()
    with Progress(stream, clock=Clock()) as progress:
        for event in NOTICES:
            progress.take(event)
    seen = stream.getvalue()
    assert all(words in seen for words in NOTICES_IN_WORDS)
    if kind is io.StringIO:
        assert len(seen.splitlines()) == len(NOTICES_IN_WORDS)
