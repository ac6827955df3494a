"""Checkpoints: the model as a standard folder that transformers or PEFT load, and beside it what PPO needs to go on.

A checkpoint is written to a new folder and then put in place, so that a crash while writing leaves the last one.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from llamagym_tui.engine.policy import Policy
from llamagym_tui.engine.ppo import PPO
from llamagym_tui.engine.value_head import VALUE_HEAD_FILE
from llamagym_tui.errors import RunStoreError

MODEL, STATE, COUNTERS = "model", "learner.pt", "counters.json"


def save_checkpoint(run_dir: Path, policy: Policy, ppo: PPO, counters: dict[str, Any]) -> Path:
    """Write model, tokenizer, optimizer, random states and counters into a run folder; the model's folder.

    Args:
        run_dir: the run's folder.
        policy: what plays.
        ppo: what learns.
        counters: anything JSON that the session wants back.
    """
    new, place, old = run_dir / "model.new", run_dir / MODEL, run_dir / "model.old"
    shutil.rmtree(new, ignore_errors=True)
    policy.model.save_pretrained(new)
    policy.chat.tokenizer.save_pretrained(new)
    torch.save(
        {"ppo": ppo.state_dict(), "generator": policy.generator.get_state()},
        new / STATE,
    )
    (new / COUNTERS).write_text(json.dumps(counters, indent=1))
    shutil.rmtree(old, ignore_errors=True)
    if place.exists():
        os.replace(place, old)
    os.replace(new, place)
    shutil.rmtree(old, ignore_errors=True)
    return place


def load_checkpoint(run_dir: Path, policy: Policy, ppo: PPO) -> dict[str, Any]:
    """Put a checkpoint's weights and learner state into a policy and a learner made from the original model.

    Returns:
        The counters that were saved with it.
    Raises:
        RunStoreError: there is no checkpoint, or it is broken.
    """
    place = run_dir / MODEL
    if not (place / STATE).is_file() and (run_dir / "model.old" / STATE).is_file():
        place = run_dir / "model.old"
    try:
        _load_weights(place, policy)
        state = torch.load(place / STATE, weights_only=True)
        counters = json.loads((place / COUNTERS).read_text())
        ppo.load_state_dict(state["ppo"])
    except (OSError, KeyError, RuntimeError, ValueError) as error:
        raise RunStoreError(
            f"No checkpoint can be read in {str(run_dir)!r} ({error}): begin anew in another --run-dir."
        ) from error
    policy.version = ppo.updates
    policy.generator.set_state(state["generator"])
    return counters


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
