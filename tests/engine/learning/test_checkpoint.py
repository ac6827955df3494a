"""The latest and the last good checkpoint: what stays when, going back, and crashes while they are written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace as replaced

from llamagym_tui.engine.learning.checkpoint import keep_checkpoint, load_checkpoint, roll_back, save_checkpoint
from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.errors import RunStoreError
from tests.engine.learning.test_ppo import QUICK, collect, weights


@pytest.mark.parametrize("lora", [False, True])
def test_a_roll_back_restores_every_bit_and_leaves_randomness_alone(make_policy, tmp_path, lora):
    policy = make_policy(lora=lora, seed=1)
    ppo = PPO(policy, replaced(QUICK, lr_final=QUICK.lr), seed=1)
    ppo.update(collect(policy))
    save_checkpoint(tmp_path, policy, ppo, {})
    keep_checkpoint(tmp_path)
    good, moments = weights(policy), ppo.optimizer.state_dict()["state"]
    head = policy.model.v_head.out.weight.detach().clone()
    moments = {index: {name: value.clone() for name, value in state.items()} for index, state in moments.items()}
    for _ in range(2):
        ppo.update(collect(policy))
    save_checkpoint(tmp_path, policy, ppo, {})
    randomness = ppo.state.random, policy.generator.get_state()
    assert roll_back(tmp_path, policy, ppo) == tmp_path / "good"
    assert torch.equal(weights(policy), good)
    assert torch.equal(policy.model.v_head.out.weight, head)
    found = ppo.optimizer.state_dict()["state"]
    assert all(torch.equal(found[index][name], value) for index in moments for name, value in moments[index].items())
    assert ppo.updates == 1
    assert policy.version == 4  # three updates and a roll back: nothing takes it for an earlier one
    assert ppo.state.random == randomness[0]
    assert torch.equal(policy.generator.get_state(), randomness[1])
    assert ppo.update(collect(policy)).first_ratio < 1e-3


def test_the_good_checkpoint_stays_while_the_latest_moves_on_and_shares_its_files_until_then(make_policy, tmp_path):
    policy = make_policy()
    ppo = PPO(policy, QUICK)
    save_checkpoint(tmp_path, policy, ppo, {"episodes": 1})
    keep_checkpoint(tmp_path)
    latest, good = (tmp_path / name / "learner.safetensors" for name in ("model", "good"))
    assert latest.samefile(good)
    before = good.read_bytes()
    ppo.update(collect(policy))
    save_checkpoint(tmp_path, policy, ppo, {"episodes": 2})
    assert good.read_bytes() == before != latest.read_bytes()
    assert load_checkpoint(tmp_path, policy, ppo).counters == {"episodes": 2}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["good", "model", "model.old"]


def test_where_files_cannot_be_linked_they_are_copied(make_policy, tmp_path, monkeypatch):
    def refuse(*paths: object) -> None:
        raise OSError(1, "Operation not permitted")

    policy = make_policy()
    ppo = PPO(policy, QUICK)
    save_checkpoint(tmp_path, policy, ppo, {})
    monkeypatch.setattr(os, "link", refuse)
    keep_checkpoint(tmp_path)
    assert not (tmp_path / "model" / "learner.safetensors").samefile(tmp_path / "good" / "learner.safetensors")
    roll_back(tmp_path, policy, ppo)


class Crash(BaseException):
    """The process dies here."""


@pytest.mark.parametrize("which", [save_checkpoint, keep_checkpoint])
@pytest.mark.parametrize("crashes", [[0], [1], [1, 0]])
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
    assert load_checkpoint(tmp_path, policy, ppo).counters == {"episodes": 1}
    roll_back(tmp_path, policy, ppo)
    assert torch.equal(weights(policy), first)
    save_checkpoint(tmp_path, policy, ppo, {"episodes": 3})  # and the next ones are as ever
    keep_checkpoint(tmp_path)
    assert load_checkpoint(tmp_path, policy, ppo).counters == {"episodes": 3}
    assert {path.name for path in tmp_path.iterdir()} == {"good", "model", "model.old"}


def test_without_a_good_checkpoint_a_roll_back_is_refused_and_changes_nothing(make_policy, tmp_path):
    policy = make_policy()
    ppo = PPO(policy, QUICK)
    save_checkpoint(tmp_path, policy, ppo, {})
    before = weights(policy)
    with pytest.raises(RunStoreError, match="no good checkpoint to roll back to yet"):
        roll_back(tmp_path, policy, ppo)
    assert torch.equal(weights(policy), before)
    assert policy.version == 0


@pytest.mark.parametrize("name", ["model", "model.new", "model.old", "good", "good.old", "good.new"])
def test_a_checkpoint_is_never_written_or_removed_through_a_link(make_policy, tmp_path, name):
    run, victim = tmp_path / "run", tmp_path / "victim"
    for folder in (run, victim):
        folder.mkdir()
    (victim / "learner.pt").write_text("theirs")
    (run / name).symlink_to(victim)
    policy = make_policy()
    for _ in range(2):
        save_checkpoint(run, policy, PPO(policy, QUICK), {})
        keep_good_checkpoint(run)
    assert [path.name for path in victim.iterdir()] == ["learner.pt"]
    assert (victim / "learner.pt").read_text() == "theirs"
    assert not (run / "model").is_symlink()
    assert not (run / "good").is_symlink()
