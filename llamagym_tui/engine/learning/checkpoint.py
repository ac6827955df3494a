"""Checkpoints: the model as a standard folder that transformers or PEFT load, and what PPO needs to resume.

A run folder holds the latest one (``model/``) and the last good one (``good/``), which shares the latest's files as
long as the two are the same; after a warm start, the policy that PPO began from too (``start/``). Each is written to a
new folder and then put in place, so that a crash at any moment leaves one that is whole.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.model.value_head import VALUE_HEAD_FILE
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.errors import RunStoreError
from llamagym_tui.user_files import discard, discard_drafts, draft_folder

MODEL, GOOD, START = "model", "good", "start"
STATE, COUNTERS = "learner.pt", "counters.json"


def save_checkpoint(run_dir: Path, policy: Policy, ppo: PPO, counters: dict[str, Any]) -> Path:
    """Write model, tokenizer, optimizer, random states and the session's JSON counters; the model's folder."""
    with _written(run_dir, MODEL) as new:
        policy.model.save_pretrained(new)
        policy.chat.tokenizer.save_pretrained(new)
        torch.save({"ppo": ppo.state_dict(), "generator": policy.generator.get_state()}, new / STATE)
        (new / COUNTERS).write_text(json.dumps(counters, indent=1))
    return run_dir / MODEL


def keep_good_checkpoint(run_dir: Path) -> Path:
    """Keep the latest checkpoint as the last good one; its folder.

    Raises:
        OSError: it cannot be written; the last good one still stands.
    """
    with _written(run_dir, GOOD) as new:
        shutil.copytree(_standing(run_dir, MODEL), new, copy_function=_linked, dirs_exist_ok=True)
    return run_dir / GOOD


def load_checkpoint(run_dir: Path, policy: Policy, ppo: PPO) -> dict[str, Any]:
    """Restore weights and learner state in a policy and a learner made from the original model; the saved counters.

    Raises:
        RunStoreError: there is no checkpoint, or it is broken.
    """
    counters, generator = _load(_standing(run_dir, MODEL), policy, ppo)
    policy.version = ppo.updates
    policy.generator.set_state(generator)
    return counters


def roll_back(run_dir: Path, policy: Policy, ppo: PPO) -> Path:
    """Restore weights and learner state of the last good checkpoint; its folder.

    Random states are not restored, or the same failure would follow. The policy gets a new version, so that nothing is
    used that the abandoned weights computed.

    Raises:
        RunStoreError: there is no good checkpoint, or it is broken.
    """
    place = _standing(run_dir, GOOD)
    if not place.is_dir():
        raise RunStoreError(
            "There is no good checkpoint to roll back to yet: one is kept once an update after it has shown nothing "
            "wrong; train on, or start again in another --run-dir."
        )
    _load(place, policy, ppo, random=ppo.state_dict()["random"])
    policy.version += 1
    return place


def save_start(run_dir: Path, policy: Policy) -> Path:
    """Keep the policy after a warm start, which is PPO's reference; its folder.

    Raises:
        OSError: it cannot be written; the one before still stands.
    """
    with _written(run_dir, START) as new:
        policy.model.save_pretrained(new)
    return run_dir / START


def load_start(run_dir: Path, policy: Policy) -> None:
    """Restore what `save_start` kept, if there is anything.

    Raises:
        RunStoreError: it is broken.
    """
    place = run_dir / START if (run_dir / START).is_dir() else run_dir / f"{START}.old"
    if not place.is_dir():
        return
    try:
        _load_weights(place, policy)
    except (OSError, RuntimeError, ValueError) as error:
        raise RunStoreError(
            f"The policy that PPO began from cannot be read in {str(place)!r} ({error}): "
            "start again in another --run-dir."
        ) from error


@contextlib.contextmanager
def _written(run_dir: Path, name: str) -> Iterator[Path]:
    """A new folder to write a checkpoint to, which then replaces the old one: after a crash one of both is whole."""
    place, old = run_dir / name, run_dir / f"{name}.old"
    discard_drafts(run_dir)
    new = draft_folder(run_dir)
    yield new
    if os.path.lexists(place):
        discard(old)  # not before: it may be all that a crash has left
        os.replace(place, old)
    os.replace(new, place)
    with contextlib.suppress(OSError):
        discard(old)


def _standing(run_dir: Path, name: str) -> Path:
    """The folder of a checkpoint; after a crash between two renamings, the one before."""
    place, old = run_dir / name, run_dir / f"{name}.old"
    return old if not (place / STATE).is_file() and (old / STATE).is_file() else place


def _linked(source: str, target: str) -> None:
    """The same file at another place: a hard link where the file system has them, else a copy."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _load(place: Path, policy: Policy, ppo: PPO, **kept: Any) -> tuple[dict[str, Any], torch.Tensor]:
    """Restore weights and learner, except what is `kept` of the learner; counters, and the random state of sampling."""
    try:
        state = torch.load(place / STATE, weights_only=True)
        counters = json.loads((place / COUNTERS).read_text())
        _load_weights(place, policy)
        ppo.load_state_dict({**state["ppo"], **kept})
        return counters, state["generator"]
    except (OSError, KeyError, RuntimeError, ValueError) as error:
        raise RunStoreError(
            f"No checkpoint can be read in {str(place.parent)!r} ({error}): start again in another --run-dir."
        ) from error


def _load_weights(place: Path, policy: Policy) -> None:
    model = policy.model
    model.v_head.load_state_dict(load_file(place / VALUE_HEAD_FILE))
    if model.is_adapted:
        from peft import set_peft_model_state_dict

        set_peft_model_state_dict(model.pretrained_model, load_file(place / "adapter_model.safetensors"))
        return
    weights: dict[str, torch.Tensor] = {}
    for file in sorted(place.glob("model*.safetensors")):
        weights |= load_file(file)
    missing, unexpected = model.causal_lm.load_state_dict(weights, strict=False)
    tied = set(model.causal_lm.all_tied_weights_keys)
    if unexpected or set(missing) - tied:
        raise ValueError(f"its weights are not those of this model: {sorted([*missing, *unexpected])[:3]}")
