"""Run folders: made, refused, resumed, listed."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from llamagym_tui.errors import RunStoreError, UsageError
from llamagym_tui.protocol.events import PhaseChanged, PromptChanged, RunStarted
from llamagym_tui.runs import run_store
from llamagym_tui.runs.run_store import RunStore, list_runs, require_same_policy
from llamagym_tui.settings import LoraConfig, PPOConfig, RunConfig
from tests.recorded_run import record

pytestmark = pytest.mark.usefixtures("data_folder")


def config(run_dir: Path, **settings: object) -> RunConfig:
    return RunConfig(agent="blackjack", run_dir=str(run_dir), **settings)  # type: ignore[arg-type]


def started(prompt: str) -> RunStarted:
    return RunStarted(
        agent="blackjack", model="bundled", run_dir="r", n_envs=1, mode="train",
        system_prompt=prompt, prompt_version=0, baselines={},
        episodes=0, updates=0,
    )  # fmt: skip


def test_a_new_folder_holds_the_settings_and_takes_events(tmp_path: Path) -> None:
    settings = config(tmp_path / "deep" / "run", seed=3, ppo=PPOConfig(lr=1e-3))
    store = RunStore.create(settings)
    store.append(PhaseChanged(phase="loading"))
    store.close()
    assert run_store.read_config(store.run_dir) == settings
    assert list(run_store.read_events(store.run_dir)) == [PhaseChanged(phase="loading")]
    assert run_store.is_run(store.run_dir)
    assert store.log_path.name == "trainer.log"


@pytest.mark.parametrize("name", ["config.json", "events.jsonl", "model", "model.old"])
def test_a_folder_that_holds_a_run_is_refused_without_resume(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("{}")
    with pytest.raises(
        RunStoreError,
        match=r"already holds a run .* --resume, or choose another folder with --run-dir",
    ):
        RunStore.create(config(tmp_path))
    assert (tmp_path / name).read_text() == "{}"


def test_a_resumed_run_appends_and_takes_new_settings(tmp_path: Path) -> None:
    for settings in [config(tmp_path), config(tmp_path, resume=True, episodes=9)]:
        store = RunStore.create(settings)
        (tmp_path / "model").mkdir(exist_ok=True)
        store.append(PhaseChanged(phase="loading"))
        store.close()
    assert len(list(run_store.read_events(tmp_path))) == 2
    assert run_store.read_config(tmp_path).episodes == 9


def test_a_resumed_run_loses_its_torn_last_line_only(tmp_path: Path) -> None:
    store = RunStore.create(config(tmp_path))
    store.append(PhaseChanged(phase="loading"))
    store.close()
    (tmp_path / "model").mkdir()
    with (tmp_path / "events.jsonl").open("ab") as file:
        file.write(b'{"type":"Pha')
    store = RunStore.create(config(tmp_path, resume=True))
    store.append(PhaseChanged(phase="stopped"))
    store.close()
    assert [event.phase for event in run_store.read_events(tmp_path)] == ["loading", "stopped"]  # type: ignore[union-attr]


def test_resuming_where_no_run_is_says_so_and_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(RunStoreError, match="holds no run"):
        RunStore.create(config(tmp_path / "gone", resume=True))
    assert not (tmp_path / "gone").exists()


def test_a_run_that_left_no_checkpoint_is_not_resumed(tmp_path: Path) -> None:
    RunStore.create(config(tmp_path)).close()
    with pytest.raises(RunStoreError, match="ended before its first checkpoint"):
        RunStore.create(config(tmp_path, resume=True))


@pytest.mark.parametrize("setting", ["agent", "model"])
def test_a_run_is_not_resumed_with_another_agent_or_model(tmp_path: Path, setting: str) -> None:
    RunStore.create(config(tmp_path)).close()
    other = msgspec.structs.replace(config(tmp_path, resume=True), **{setting: "other"})
    with pytest.raises(RunStoreError, match=rf"has {setting} (blackjack|bundled), not other"):
        RunStore.create(other)


@pytest.mark.parametrize(("before", "after"), [(False, True), (True, False)])
def test_an_adapter_on_the_head_does_not_go_on_with_other_wordings(
    tmp_path: Path, before: bool, after: bool
) -> None:
    head = {"lora": LoraConfig(layers="head"), "full_finetuning": False}
    RunStore.create(config(tmp_path / "head", wordings=before, **head)).close()
    RunStore.create(config(tmp_path / "all", wordings=before, full_finetuning=True)).close()
    other = config(tmp_path / "branch", wordings=after)
    with pytest.raises(RunStoreError, match="with the same wordings, or begin a new run"):
        require_same_policy(other, tmp_path / "head")
    require_same_policy(config(tmp_path / "branch", wordings=before), tmp_path / "head")
    require_same_policy(other, tmp_path / "all")


def test_two_processes_do_not_write_one_folder(tmp_path: Path) -> None:
    store = RunStore.create(config(tmp_path))
    (tmp_path / "model").mkdir()
    with pytest.raises(RunStoreError, match="Another process trains in"):
        RunStore.create(config(tmp_path, resume=True))
    with pytest.raises(RunStoreError, match="Another process trains in"):
        RunStore(tmp_path).check(config(tmp_path, resume=True))  # before anything is loaded
    store.close()
    RunStore.create(config(tmp_path, resume=True)).close()


def test_a_run_that_never_began_leaves_nothing_and_one_with_a_checkpoint_stays(
    tmp_path: Path,
) -> None:
    for name, remains in {"unbegun": False, "begun": True}.items():
        store = RunStore.create(config(tmp_path / name))
        store.close()
        if remains:
            (store.run_dir / "model").mkdir()
        store.discard_unbegun(keeps_log=False)
        assert run_store.is_run(store.run_dir) == store.run_dir.exists() == remains


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        RunStoreError, match=r"cannot be written .* choose another one with --run-dir"
    ):
        RunStore.create(config(tmp_path / "file" / "run"))


def test_settings_that_are_not_ours_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(RunStoreError, match="has no settings of a run"):
        run_store.read_config(tmp_path)


def test_the_prompt_at_the_end_is_the_last_confirmed_one(tmp_path: Path) -> None:
    store = RunStore.create(config(tmp_path))
    for event in [started("first"), PromptChanged(prompt_version=1, system_prompt="second")]:
        store.append(event)
    store.close()
    assert run_store.last_settings(tmp_path).system_prompt == "second"


def test_new_folders_have_time_and_agent_in_their_name(tmp_path: Path) -> None:
    noon = datetime(2025, 3, 4, 12, 0, 0, tzinfo=UTC)
    first = run_store.new_run_dir("ALE/Pong-v5", clock=lambda: noon)
    assert first == tmp_path / "runs" / "20250304-120000-ALE-Pong-v5"


def test_a_folder_that_cannot_be_made_is_named_and_refused_where_it_is_written(
    tmp_path: Path,
) -> None:
    (tmp_path / "runs").write_text("a file, where runs should live")
    folder = run_store.new_run_dir("lake")
    with pytest.raises(RunStoreError, match="cannot be written"):
        RunStore.create(config(folder))


def test_runs_are_listed_latest_first_and_other_folders_left_out(tmp_path: Path) -> None:
    assert run_store.list_runs() == []
    for age_s, name in [(200, "old"), (100, "young")]:
        RunStore.create(config(tmp_path / "runs" / name)).close()
        os.utime(tmp_path / "runs" / name / "config.json", (1e9 - age_s, 1e9 - age_s))
    (tmp_path / "runs" / "young" / "model").mkdir()
    (tmp_path / "runs" / "nothing").mkdir()
    listed = run_store.list_runs()
    assert [(run.run_dir.name, run.has_checkpoint) for run in listed] == [
        ("young", True),
        ("old", False),
    ]


def test_a_run_is_found_by_its_path_by_its_name_or_as_the_latest() -> None:
    for seconds, name in enumerate(("one", "two")):
        RunStore.create(config(run_store.runs_dir() / name)).close()
        os.utime(run_store.runs_dir() / name / "config.json", (1000 + seconds,) * 2)
    assert run_store.find_run(str(run_store.runs_dir() / "one")) == run_store.runs_dir() / "one"
    assert run_store.find_run("one") == run_store.runs_dir() / "one"
    assert run_store.find_run(None) == run_store.runs_dir() / "two"
    with pytest.raises(UsageError, match="There is no run three"):
        run_store.find_run("three")


def test_a_run_was_begun_when_its_folder_says_and_the_latest_is_the_one_that_was_begun_or_resumed_last(
    tmp_path: Path,
) -> None:
    first = record(tmp_path / "runs" / "20260102-030405-one", [])
    second = record(tmp_path / "runs" / "20260102-030406-two", [])
    os.utime(second / "config.json", (1.8e9, 1.8e9))
    os.utime(first / "config.json", (1.9e9, 1.9e9))
    assert [run.started_at.isoformat() for run in list_runs()] == [
        "2026-01-02T03:04:06+00:00", "2026-01-02T03:04:05+00:00",
    ]  # fmt: skip
    assert run_store.find_run(None) == first
