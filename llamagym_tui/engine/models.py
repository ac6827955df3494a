"""Finding and loading models: the bundled one, local folders, and hub ids.

The bundled model and local folders are loaded without asking any hub. Only safetensors are read and no model's own
code is run.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import huggingface_hub
import torch
from transformers import AutoTokenizer

from llamagym_tui.config import Device, LoraConfig
from llamagym_tui.engine.value_head import AutoModelForCausalLMWithValueHead
from llamagym_tui.errors import ModelLoadError

BUNDLED = "bundled"
HUB_TIMEOUT_S = 3.0
"""How long a hub may take to answer at all."""
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
    if path is None:
        _require_reachable(name)
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


def _require_reachable(name: str) -> None:
    """Fail at once, instead of after minutes of retries, where a hub model is neither cached nor to be had."""
    cached = huggingface_hub.try_to_load_from_cache(name, "config.json")
    if isinstance(cached, str) or os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy"):
        return
    hub = urlsplit(huggingface_hub.constants.ENDPOINT)
    offline = huggingface_hub.constants.HF_HUB_OFFLINE
    try:
        if not offline:
            port = hub.port or (443 if hub.scheme == "https" else 80)
            socket.create_connection((hub.hostname or "", port), timeout=HUB_TIMEOUT_S).close()
            return
    except OSError:
        pass
    raise ModelLoadError(
        f"Model {name!r} is not on this machine and the hub cannot be reached: "
        "check its name and the network, or use --model bundled."
    )


def _is_model(path: Path) -> bool:
    return any(path.glob("*.safetensors"))


def _adapted(model: AutoModelForCausalLMWithValueHead, lora: LoraConfig) -> Any:
    from llamagym_tui.engine.value_head import with_adapter

    return with_adapter(model.causal_lm, lora)


def _why(name: str, path: Path | None, error: Exception) -> str:
    """One sentence about a model that does not load."""
    if path is not None:
        return f"The model in {str(path)!r} does not load: {_in_one_line(error)}"
    text = f"{type(error).__name__} {error}"
    if "gated" in text.lower():
        return f"Model {name!r} is gated: ask for access on its hub page and set HF_TOKEN, or use --model bundled."
    return f"Model {name!r} does not load ({_in_one_line(error)}): check its name, or use --model bundled."


def _in_one_line(error: Exception, limit: int = 200) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= limit else text[:limit] + "…"
