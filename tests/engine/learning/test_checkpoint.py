"""The latest and the last good checkpoint: what stays when, going back, and crashes while they are written."""

from __future__ import annotations

import copy
import json
import os
import pickle
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from msgspec.structs import replace as replaced

from llamagym_tui.engine.learning.checkpoint import (
    keep_checkpoint,
    keep_with_reference,
    load_checkpoint,
    load_start,
    roll_back,
    save_checkpoint,
    save_start,
)
from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.policy.earlier import EarlierSelf
from llamagym_tui.errors import RunStoreError
from tests.engine.learning.test_ppo import QUICK, collect, weights


def test_transformers_sample_and_end_replies_from_a_checkpoint_as_the_run_does(
    make_policy, tmp_path
):
    policy = make_policy(temperature=0.5)
    policy.model.causal_lm.generation_config.repetition_penalty = 1.3
    place = save_checkpoint(tmp_path, policy, PPO(policy, QUICK), {})
    said = json.loads((place / "generation_config.json").read_text("utf-8"))
    assert (said["temperature"], said.get("repetition_penalty")) == (0.5, None)
    assert said["eos_token_id"] == list(policy.chat.end_ids)


@pytest.mark.parametrize("lora", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_roll_back_restores_every_bit_and_leaves_randomness_alone(make_policy, tmp_path, lora):
    policy = make_policy(lora=lora, seed=1)
    ppo = PPO(policy, replaced(QUICK, lr_final=QUICK.lr), seed=1)
    ppo.update(collect(policy))
    save_checkpoint(tmp_path, policy, ppo, {})
    keep_checkpoint(tmp_path)
    good, moments = weights(policy), ppo.steps.optimizer.state_dict()["state"]
    head = policy.model.v_head.out.weight.detach().clone()
    moments = {
        index: {name: value.clone() for name, value in state.items()}
        for index, state in moments.items()
    }
    for _ in range(2):
        ppo.update(collect(policy))
    save_checkpoint(tmp_path, policy, ppo, {})
    randomness = ppo.state.random, policy.generator.get_state()
    assert roll_back(tmp_path, policy, ppo) == tmp_path / "good"
    assert torch.equal(weights(policy), good)
    assert torch.equal(policy.model.v_head.out.weight, head)
    found = ppo.steps.optimizer.state_dict()["state"]
    assert all(
        torch.equal(found[index][name], value)
        for index in moments
        for name, value in moments[index].items()
    )
    assert ppo.updates == 1
    assert policy.version == 4  # three updates and a roll back: nothing takes it for an earlier one
    assert ppo.state.random == randomness[0]
    assert torch.equal(policy.generator.get_state(), randomness[1])
    assert ppo.update(collect(policy)).first_ratio < 1e-3


@pytest.mark.parametrize("lora", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_warm_start_is_taken_back_to_the_bit_and_so_is_the_reference(
    make_policy, tmp_path, monkeypatch, lora
):
    policy = make_policy(lora=lora, seed=1)
    ppo = PPO(policy, replaced(QUICK, kl_coef=0.1), seed=1)
    episodes = collect(policy)
    ppo.update(episodes)
    save_checkpoint(tmp_path, policy, ppo, {})
    keep_with_reference(tmp_path, policy, ppo)
    before, moments = weights(policy), copy.deepcopy(ppo.steps.optimizer.state_dict()["state"])
    reference = ppo.targets(episodes).kl_ref
    with torch.no_grad():
        for weight in policy.model.parameters():
            if weight.requires_grad:
                weight += 0.01 * torch.randn_like(weight)
    ppo.reference = EarlierSelf.of(policy)
    save_start(tmp_path, policy)
    ppo.update(collect(policy))
    save_checkpoint(tmp_path, policy, ppo, {})

    def no_space(*paths: str) -> None:
        raise OSError(28, "No space left on device")

    trained, update = weights(policy), ppo.updates
    with monkeypatch.context() as full:
        full.setattr(os, "link", no_space)
        full.setattr(shutil, "copy2", no_space)
        with pytest.raises(RunStoreError, match="No space left on device"):
            roll_back(tmp_path, policy, ppo)
    assert (torch.equal(weights(policy), trained), ppo.updates) == (True, update)
    roll_back(tmp_path, policy, ppo)
    assert torch.equal(weights(policy), before)
    found = ppo.steps.optimizer.state_dict()["state"]
    assert all(
        torch.equal(found[index][name], value)
        for index in moments
        for name, value in moments[index].items()
    )
    assert ppo.updates == 1
    assert torch.equal(ppo.targets(episodes).kl_ref, reference)
    load_start(tmp_path, policy)  # as a resumed run makes its reference
    ppo.reference = EarlierSelf.of(policy)
    assert torch.equal(ppo.targets(episodes).kl_ref, reference)


class Crash(BaseException):
    """The process dies here."""


@pytest.mark.parametrize("which", [save_checkpoint, keep_checkpoint])
@pytest.mark.parametrize("crashes", [[0], pytest.param([1], marks=pytest.mark.slow), [1, 0]])
def test_a_crash_between_two_renamings_leaves_both_checkpoints_whole(
    make_policy, tmp_path, monkeypatch, which, crashes
):
    """`crashes`: after how many renamings, one time after the other."""
    policy = make_policy()
    ppo = PPO(policy, QUICK)
    save_checkpoint(tmp_path, policy, ppo, {"episodes": 1})
    keep_checkpoint(tmp_path)
    first = weights(policy)
    ppo.update(collect(policy))
    rename, left = os.replace, 0

    def crashing(source: Path, target: Path) -> None:
        nonlocal left
        if not left:
            raise Crash
        left -= 1
        rename(source, target)

    arguments = (policy, ppo, {"episodes": 2}) if which is save_checkpoint else ()
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", crashing)
        for left in crashes:  # noqa: B007
            with pytest.raises(Crash):
                which(tmp_path, *arguments)
    load_start(tmp_path, policy)  # as a resumed run begins
    assert not list(tmp_path.glob(".*"))
    assert load_checkpoint(tmp_path, policy, ppo).counters == {"episodes": 1}
    roll_back(tmp_path, policy, ppo)
    assert torch.equal(weights(policy), first)
    save_checkpoint(tmp_path, policy, ppo, {"episodes": 3})  # and the next ones are as ever
    keep_checkpoint(tmp_path)
    assert load_checkpoint(tmp_path, policy, ppo).counters == {"episodes": 3}
    assert {path.name for path in tmp_path.iterdir()} == {"good", "model", "model.old"}


@pytest.fixture(scope="module")
def run_of_three(make_policy, tmp_path_factory):
    """A folder with checkpoints of updates 1 (good), 2 (the one before) and 3 (latest)."""
    run_dir, policy = tmp_path_factory.mktemp("three"), make_policy()
    ppo = PPO(policy, QUICK)
    for update in (1, 2, 3):
        ppo.update(collect(policy, episodes=8))
        save_checkpoint(run_dir, policy, ppo, {"update": update})
        if update == 1:
            keep_checkpoint(run_dir)
    return run_dir


@pytest.fixture
def three_checkpoints(make_policy, run_of_three, tmp_path):
    """Policy and learner at update 3, and a copy of that folder."""
    shutil.copytree(run_of_three, tmp_path, dirs_exist_ok=True)
    policy = make_policy()
    ppo = PPO(policy, QUICK)
    assert load_checkpoint(tmp_path, policy, ppo).counters == {"update": 3}
    return SimpleNamespace(policy=policy, ppo=ppo, run_dir=tmp_path)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


FAULTS = {
    "cut weights": lambda folder: cut(folder / "model.safetensors"),
    "cut moments": lambda folder: cut(folder / "learner.safetensors"),
    "cut state": lambda folder: cut(folder / "learner.msgpack"),
    "no state": lambda folder: (folder / "learner.msgpack").unlink(),
    "no value head": lambda folder: (folder / "value_head.safetensors").unlink(),
    "deep state": lambda folder: (folder / "learner.msgpack").write_bytes(b"\x91" * 200_000),
    "empty": lambda folder: [path.unlink() for path in folder.iterdir()],
    "a pipe": lambda folder: os.mkfifo(folder / "pipe"),
    "other counters": lambda folder: (
        cut(folder / "config.json") or (folder / "learner.msgpack").write_bytes(b"\x80")
    ),
    "another optimizer": lambda folder: shutil.copy(
        folder / "value_head.safetensors", folder / "learner.safetensors"
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_checkpoint_with_any_fault_is_passed_over_in_one_sentence_of_ours(
    three_checkpoints, fault, caplog
):
    policy, ppo, run_dir = vars(three_checkpoints).values()
    FAULTS[fault](run_dir / "model")
    loaded = load_checkpoint(run_dir, policy, ppo)
    assert (loaded.counters, ppo.updates, policy.version) == ({"update": 2}, 2, 2)
    assert loaded.note.startswith("The latest checkpoint cannot be used (")
    assert loaded.note.endswith("); the run goes on from the one before it, of update 2.")
    assert not {"Error", "header", "weights_only", "safetensors", "msgpack", "$"} & set(
        loaded.note.replace("learner.msgpack is missing", "")
        .replace("value_head.safetensors is", "")
        .split()
    )
    # The one that was taken is not pushed out by the next one before that is whole.
    assert (run_dir / "model.unreadable").is_dir()
    assert load_checkpoint(run_dir, policy, ppo).counters == {"update": 2}


def test_where_latest_and_previous_are_broken_the_last_good_one_is_taken_and_then_none(
    three_checkpoints,
):
    policy, ppo, run_dir = vars(three_checkpoints).values()
    for name in ("model", "model.old"):
        cut(run_dir / name / "learner.safetensors")
    loaded = load_checkpoint(run_dir, policy, ppo)
    assert (loaded.counters, ppo.updates) == ({"update": 1}, 1)
    assert "the run goes on from the last good one, of update 1." in loaded.note
    cut(run_dir / "good" / "learner.safetensors")
    with pytest.raises(
        RunStoreError, match=r"its files are damaged.*; start again in another --run-dir\.$"
    ):
        load_checkpoint(run_dir, policy, ppo)


def test_an_optimizer_of_another_shape_is_refused(three_checkpoints, make_policy):
    policy, ppo, run_dir = vars(three_checkpoints).values()
    shutil.rmtree(run_dir / "model.old")
    shutil.rmtree(run_dir / "good")
    ppo.steps._head.reverse()
    with pytest.raises(RunStoreError, match="its optimizer belongs to other weights"):
        load_checkpoint(run_dir, policy, ppo)


class Runs:
    def __reduce__(self):
        return (os.system, ("touch ran",))


def test_no_pickle_in_a_checkpoint_runs(three_checkpoints, monkeypatch, tmp_path):
    policy, ppo, run_dir = vars(three_checkpoints).values()
    monkeypatch.chdir(tmp_path)
    for name in ("learner.msgpack", "learner.safetensors", "training_args.bin"):
        (run_dir / "model" / name).write_bytes(pickle.dumps(Runs()))
    assert load_checkpoint(run_dir, policy, ppo).counters == {"update": 2}
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("write", [save_checkpoint, keep_checkpoint])
def test_a_full_disk_leaves_no_half_written_folder_and_says_so_in_words_of_ours(
    three_checkpoints, monkeypatch, write
):
    policy, ppo, run_dir = vars(three_checkpoints).values()
    before = sorted(path.name for path in run_dir.iterdir())

    def full(*arguments: object, **more: object) -> None:
        raise RuntimeError("Error while serializing: IoError(Os { code: 28, kind: StorageFull })")

    monkeypatch.setattr("llamagym_tui.engine.learning.checkpoint.save_file", full)
    monkeypatch.setattr(shutil, "copytree", full)
    with pytest.raises(
        RunStoreError, match=r"^No checkpoint was written in '.*': No space left on device\.$"
    ):
        write(*((run_dir, policy, ppo, {}) if write is save_checkpoint else (run_dir,)))
    assert sorted(path.name for path in run_dir.iterdir()) == before
    assert load_checkpoint(run_dir, policy, ppo).counters == {"update": 3}
