"""A session that is taught by demonstrations, on fakes: when it trains, what it refuses, and how it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llamagym_tui.demos import files as demo_files
from llamagym_tui.game.agent_base import prompt_sha256
from llamagym_tui.game.chat import assistant, system, user
from llamagym_tui.protocol.commands import (
    CancelWarmStart,
    RollBack,
    Stop,
    WarmStart,
)
from llamagym_tui.protocol.events import (
    CheckpointSaved,
    RolledBack,
    RunFinished,
    UpdateFinished,
    WarmStartEvaluated,
    WarmStartFinished,
    WarningRaised,
)
from llamagym_tui.trainer.probes.map_policy import PolicyMapper
from tests.fake_parts import Stage


def call(seed: int, **changes: Any) -> demo_files.Demonstration:
    """One call of the coin."""
    prompt = changes.pop("prompt", "Call the coin.")
    fields: dict[str, Any] = {
        "messages": [system(prompt), user("Heads or tails?"), assistant("1")],
        "agent": "coin",
        "env_id": "Coin-v0",
        "env_kwargs": {},
        "seed": seed,
        "actions": [1],
        "rewards": [1.0],
        "episode_return": 1.0,
        "length": 1,
        "end": "terminated",
        "source": "human",
        "model": None,
        "prompt_sha256": prompt_sha256(prompt),
        "recorded_at": "2026-01-31T12:00:00Z",
    }
    return demo_files.Demonstration(**{**fields, **changes})


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "coin.jsonl"
    demo_files.write(path, [call(seed) for seed in range(3)])
    return str(path)


def test_a_run_may_begin_with_a_warm_start(tmp_path: Path, file: str) -> None:
    stage = Stage(tmp_path / "run", sft_warm_start=True, sft_data=file, episodes=4)
    assert stage.session.run() == "stopped"
    assert stage.phases()[:4] == ["loading", "rolling_out", "warm_starting", "rolling_out"]
    (finished,) = stage.of(WarmStartFinished)
    assert (finished.stats.demonstrations, finished.stats.cancelled) == (3, False)
    assert [len(conversation) for conversation in stage.taught] == [3, 3, 3]
    before, after = (stage.events.index(saved) for saved in stage.of(CheckpointSaved)[:2])
    assert before < stage.events.index(finished) < after


def test_the_taught_policy_is_mapped_before_anything_else_is_done(
    tmp_path: Path, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path / "run", sft_warm_start=True, sft_data=file, episodes=4)
    mapped_in: list[str] = []
    monkeypatch.setattr(
        PolicyMapper, "map", lambda *_, **options: mapped_in.append(stage.phases()[-1])
    )
    stage.session.run()
    assert mapped_in[0] == "warm_starting"


def test_a_resumed_run_is_not_taught_again_and_gets_its_reference_back(
    tmp_path: Path, file: str
) -> None:
    settings: dict[str, Any] = {"sft_warm_start": True, "sft_data": file}
    first = Stage(tmp_path / "run", episodes=4, **settings)
    first.session.run()
    again = Stage(tmp_path / "run", episodes=8, resume=True, **settings)
    again.builders.saved.extend(first.builders.saved)
    again.session.run()
    assert again.of(WarmStartFinished) == []
    assert again.restored_start


def test_a_warm_start_amid_a_run_drops_the_batch_under_way(tmp_path: Path, file: str) -> None:
    stage = Stage(tmp_path / "run", episodes=16)
    stage.script = {3: [WarmStart(sft_data=file)]}
    stage.session.run()
    # Of the ten episodes after it, eight are a batch; the six before it are in none.
    assert len(stage.learner.batches) == 1
    assert {ended.policy_version for ended in stage.learner.batches[0]} == {1}


@pytest.mark.parametrize("command", [CancelWarmStart(), Stop()])
def test_a_warm_start_can_be_cancelled_and_what_was_learnt_stays(
    tmp_path: Path, file: str, command: Any
) -> None:
    stage = Stage(tmp_path / "run", episodes=4)
    stage.script = {1: [WarmStart(sft_data=file, episodes=8)]}
    stage.builders.made["before_sft_step"] = lambda step: (
        stage.command_queue.put(command) if step == 1 else None
    )
    assert stage.session.run() == "stopped"
    (finished,) = stage.of(WarmStartFinished)
    assert (finished.stats.cancelled, finished.stats.steps) == (True, 2)
    assert stage.of(WarmStartEvaluated) == []


def test_a_roll_back_takes_a_warm_start_back_until_a_batch_after_it_went_well(
    tmp_path: Path, file: str
) -> None:
    stage = Stage(tmp_path / "run", episodes=40)
    stage.script = {6: [WarmStart(sft_data=file), RollBack()]}
    stage.session.run()
    (back,) = stage.of(RolledBack)
    assert back.update == 1
    at = stage.events.index(back)
    assert (
        next(event.update for event in stage.events[at:] if isinstance(event, UpdateFinished)) == 2
    )
    assert stage.of(RunFinished)[0].episodes == 40

    later = Stage(tmp_path / "later", episodes=40)
    later.script = {6: [WarmStart(sft_data=file)]}
    later.session.run()
    saved = [id(checkpoint) for checkpoint in later.builders.saved]
    kept = [saved.index(id(checkpoint)) for checkpoint in later.builders.good]
    before = next(n for n in kept if later.builders.saved[n]["updates"] == 1)
    assert kept[kept.index(before) + 1] == before + 1, "the one that was written right after it"


def test_a_run_that_was_killed_while_it_was_taught_at_its_start_is_taught_when_it_is_resumed(
    tmp_path: Path, file: str
) -> None:
    settings: dict[str, Any] = {"sft_warm_start": True, "sft_data": file}
    first = Stage(
        tmp_path / "run", episodes=4, faults={"warm_start": RuntimeError("killed")}, **settings
    )
    first.session.run()
    again = Stage(tmp_path / "run", episodes=8, resume=True, **settings)
    again.builders.saved.extend(first.builders.saved[:1])
    again.session.run()
    assert len(again.of(WarmStartFinished)) == 1
    assert [saved["awaits_warm_start"] for saved in again.builders.saved[1:]][:2] == [True, False]


def test_a_faulty_file_requested_during_a_run_is_refused_with_its_line(
    tmp_path: Path, file: str
) -> None:
    demo_files.append(Path(file), call(3, rewards=[0.5]))
    stage = Stage(tmp_path / "run", episodes=4)
    stage.script = {1: [WarmStart(sft_data=file)]}
    assert stage.session.run() == "stopped"
    (warning,) = stage.of(WarningRaised)
    assert warning.message.startswith(
        f"{file}, line 4: The return is given as 1, but the rewards add"
    )
    assert stage.of(WarmStartFinished) == []
