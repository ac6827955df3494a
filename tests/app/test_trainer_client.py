"""The trainer process from the UI's side, against a scripted one that speaks the real wire."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from llamagym_tui.app.trainer_client import TrainerClient
from llamagym_tui.errors import LlamaGymError
from llamagym_tui.protocol.events import AnyEvent, Hello, RunFinished, SessionFailed, TokensStreamed
from llamagym_tui.runs.run_store import RunStore
from tests import fakes

posix = pytest.mark.skipif(os.name != "posix", reason="signals are POSIX")
ROOT = Path(__file__).parents[2]


async def started(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainerClient:
    monkeypatch.chdir(ROOT)
    client = TrainerClient([sys.executable, "-m", "tests.fakes", script])
    await client.start(fakes.config(tmp_path / "run"))
    return client


async def heard(client: TrainerClient) -> list[AnyEvent]:
    return [event async for event in client.events()]


async def test_a_run_is_started_heard_and_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    client = await started("serves", tmp_path, monkeypatch)
    events = client.events()
    assert isinstance(await anext(events), Hello)
    await client.stop(timeout_s=120)
    assert [type(event) async for event in events] == [RunFinished]
    assert client.exit_code == 0


async def test_the_trainer_imports_nothing_from_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "msgspec.py").write_text("open('executed', 'w')", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    client = TrainerClient()
    await client.start(fakes.config(tmp_path / "run"))
    assert isinstance(await anext(client.events()), Hello)
    await client.stop(0)
    assert not (tmp_path / "executed").exists()


@pytest.mark.slow
async def test_a_trainer_that_has_saved_and_lingers_is_ended_and_has_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    client = await started("lingers", tmp_path, monkeypatch)
    hearing = asyncio.ensure_future(heard(client))
    await asyncio.sleep(0)  # it hears by now
    assert await client.stop(timeout_s=2)
    assert isinstance((await hearing)[-1], RunFinished)
    assert client.exit_code == -15


async def test_a_trainer_that_is_killed_is_told_with_its_log_and_the_way_to_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    client = await started("killed", tmp_path, monkeypatch)
    with pytest.raises(LlamaGymError) as death:
        await heard(client)
    assert "killed by SIGKILL" in str(death.value)
    assert str(client.log_path) in str(death.value)
    assert f"llamagym-tui blackjack --resume --run-dir {tmp_path / 'run'}" in str(death.value)
    assert client.exit_code == -9


async def test_a_session_that_failed_is_no_death(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    client = await started("fails", tmp_path, monkeypatch)
    assert isinstance((await heard(client))[-1], SessionFailed)
    assert client.exit_code == 1


async def test_a_frame_longer_than_the_buffer_arrives_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    client = await started("long-reply", tmp_path, monkeypatch)
    events = client.events()
    await anext(events)
    reply = await anext(events)
    assert isinstance(reply, TokensStreamed)
    assert len(reply.text) == 3_000_000
    await client.stop(timeout_s=120)


async def test_a_trainer_that_speaks_nonsense_is_ended_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    client = await started("nonsense", tmp_path, monkeypatch)
    monkeypatch.setattr("llamagym_tui.app.trainer_client.GRACE_S", 0.2)
    with pytest.raises(LlamaGymError, match="no event"):
        await heard(client)
    assert client.exit_code is not None


async def test_a_trainer_that_does_not_listen_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    client = await started("deaf", tmp_path, monkeypatch)
    monkeypatch.setattr("llamagym_tui.app.trainer_client.GRACE_S", 0.2)
    await anext(client.events())
    await client.stop(timeout_s=0.2)
    assert client.exit_code == -9


async def test_stopping_reads_on_so_that_a_child_with_a_full_pipe_can_hear_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    client = await started("flood", tmp_path, monkeypatch)
    await client.stop(timeout_s=120)
    assert client.exit_code == 0


async def test_the_child_leaves_when_its_commands_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    client = await started("serves", tmp_path, monkeypatch)
    process = client._process
    assert process is not None
    assert process.stdin is not None
    process.stdin.close()
    assert isinstance((await heard(client))[-1], RunFinished)


async def test_asking_a_trainer_that_has_gone_is_harmless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from llamagym_tui.protocol.commands import Pause

    client = await started("fails", tmp_path, monkeypatch)
    await heard(client)
    await client.send(Pause())
    await client.stop(timeout_s=1)


async def test_a_run_folder_that_cannot_be_made_is_told(tmp_path: Path):
    (tmp_path / "file").write_text("")
    config = fakes.config(tmp_path / "file" / "run")
    with pytest.raises(LlamaGymError) as told:
        await TrainerClient().start(config)
    with pytest.raises(LlamaGymError) as told_by_train:
        RunStore.create(config)
    assert str(told.value) == str(told_by_train.value)
    assert "cannot be written (Not a directory); choose another one with" in str(told.value)


@posix
async def test_a_trainer_that_was_stopped_by_a_signal_does_not_hold_up_the_app(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from llamagym_tui.protocol.commands import SetSystemPrompt

    client = await started("serves", tmp_path, monkeypatch)
    events = client.events()
    assert isinstance(await anext(events), Hello)
    process = client._process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    async with asyncio.timeout(2):
        for _ in range(100):
            await client.send(SetSystemPrompt(system_prompt="hit " * 5_000))
    process.send_signal(signal.SIGCONT)
    await client.stop(timeout_s=120)
    assert client.exit_code == 0
