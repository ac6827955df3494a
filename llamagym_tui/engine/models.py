"""Finding and loading models: the bundled one, local folders, and hub ids.

The bundled model and local folders are loaded without asking any hub. Only safetensors are read and no model's own
code is run.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

from llamagym_tui.config import Device, LoraConfig
from llamagym_tui.engine.value_head import AutoModelForCausalLMWithValueHead
from llamagym_tui.errors import ModelLoadError

BUNDLED = "bundled"
LARGEST_FULLY_TRAINED = 50_000_000
"""Parameters up to which all weights are trained unless the user says otherwise; larger models get an adapter."""


@dataclass(frozen=True)
class LoadedModel:
    """A model that is ready to play."""

    model: AutoModelForCausalLMWithValueHead
    tokenizer: Any
    name: str
    device: str
    parameters: int
    """Of the causal LM, value head excluded."""
    trainable: int
    """Of these, how many PPO changes."""


def bundled_model_path() -> Path:
    """Folder of the model that ships with the project."""
    return Path(str(files("llamagym_tui.bundled_model")))


def resolve_device(device: Device | str) -> str:
    """The torch device that a setting stands for.

    Raises:
        ModelLoadError: the device is not there.
    """
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if device == "auto":
        return next(name for name in ("cuda", "mps", "cpu") if there[name])
    if not there.get(str(device).split(":")[0], False):
        present = ", ".join(name for name, is_there in there.items() if is_there)
        raise ModelLoadError(f"Device {device!r} is not there; this machine has: {present}.")
    return str(device)


def load_model_and_tokenizer(
    name: str = BUNDLED,
    device: Device | str = "auto",
    *,
    full_finetuning: bool | None = None,
    lora: LoraConfig | None = None,
) -> LoadedModel:
    """Load a causal LM with a value head, and its tokenizer.

    Args:
        name: ``bundled``, a local folder (a run's ``model/`` too), or a hub id.
        device: where it goes.
        full_finetuning: train all weights, or an adapter. None: all up to `LARGEST_FULLY_TRAINED` parameters.
        lora: settings of the adapter. None: defaults.
    Raises:
        ModelLoadError: the model is not there, or is not a causal LM.
    """
    where = resolve_device(device)
    path = local_path(name)
    source = str(path or name)
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=path is not None)
        model = AutoModelForCausalLMWithValueHead.from_pretrained(
            source, local_files_only=path is not None, trust_remote_code=False
        )
    except Exception as error:
        raise ModelLoadError(_why(name, path, error)) from error
    parameters = sum(p.numel() for p in model.causal_lm.parameters())
    full = parameters <= LARGEST_FULLY_TRAINED if full_finetuning is None else full_finetuning
    if not full and not model.is_adapted:
        model = AutoModelForCausalLMWithValueHead(_adapted(model, lora or LoraConfig()))
    model.to(where)
    trainable = sum(p.numel() for p in model.pretrained_model.parameters() if p.requires_grad)
    return LoadedModel(model, tokenizer, name, where, parameters, trainable)


def local_path(name: str) -> Path | None:
    """The folder that a model name stands for; None for a hub id.

    Raises:
        ModelLoadError: the name is a path, and there is no model.
    """
    if name == BUNDLED:
        return bundled_model_path()
    path = Path(name).expanduser()
    for folder in (path / "model", path):
        if (folder / "config.json").is_file() or (folder / "adapter_config.json").is_file():
            # A run folder has a config.json of its own; its model lies one below.
            if folder == path and not _is_model(path):
                continue
            return folder
    if path.exists() or name.startswith((".", "/", "~", os.sep)) or name.count("/") > 1:
        raise ModelLoadError(f"No model in {name!r}: a folder with config.json and safetensors is needed.")
    return None


def _is_model(path: Path) -> bool:
    return any(path.glob("*.safetensors"))


def _adapted(model: AutoModelForCausalLMWithValueHead, lora: LoraConfig) -> Any:
    from llamagym_tui.engine.value_head import with_adapter

    return with_adapter(model.causal_lm, lora)


def _why(name: str, path: Path | None, error: Exception) -> str:
    """One sentence about a model that does not load."""
    if path is not None:
        return f"The model in {str(path)!r} does not load: {_first_line(error)}"
    text = f"{type(error).__name__} {error}"
    if "gated" in text.lower():
        return f"Model {name!r} is gated: ask for access on its hub page and set HF_TOKEN, or use --model bundled."
    if any(sign in text for sign in ("ConnectionError", "ConnectError", "offline", "couldn't connect", "timed out")):
        return (
            f"Model {name!r} is not on this machine and the hub cannot be reached: "
            "check the network, or use --model bundled."
        )
    return f"Model {name!r} does not load ({_first_line(error)}): check its name, or use --model bundled."


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
