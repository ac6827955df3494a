"""The header of a GGUF file: what transformers does not read of it is carried into its configuration, or refused."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from llamagym_tui.errors import ModelLoadError

NEEDED = ("context_length", "embedding_length", "block_count", "attention.head_count")
"""Keys without which transformers would take the sizes of another model."""
ROPE_FACTORS = "rope_freqs.weight"
"""Divides the frequencies of positions in Llama 3.1 and later."""
FACTORS = ("rope.scaling.factor", "rope.scale_linear")
"""Keys that count only with the type of scaling; `carry_positions` reads them."""
LOW = 1.0
HIGH = 4.0
LENGTH = 8192
"""Llama 3.1 and later scale in part the frequencies with `LOW` to `HIGH` turns in `LENGTH` tokens."""
CLOSE = 1e-4
"""By which a frequency may differ from the file's, relatively: the file has it in float32."""


def keys_of(reader: Any) -> dict[str, Any]:
    """The keys of a header and their values, without the long lists of a tokenizer."""
    long = (
        "tokenizer.ggml.tokens",
        "tokenizer.ggml.merges",
        "tokenizer.ggml.scores",
        "tokenizer.ggml.token_type",
    )
    return {name: field.contents() for name, field in reader.fields.items() if name not in long}


def require_whole(file_name: str, reader: Any) -> None:
    """Refuse what is no whole model, before anything of the size that it seems to have is made.

    Raises:
        ModelLoadError: the file is one of several parts, or no model, or its header lacks a key.
    """
    keys = keys_of(reader)
    parts = int(keys.get("split.count", 1))
    if parts > 1:
        number = int(keys.get("split.no", 0)) + 1
        raise ModelLoadError(
            f"The GGUF file {file_name} is part {number} of {parts} of a model: merge them with "
            "llama-gguf-split --merge FIRST_PART WHOLE.gguf, and name the whole file."
        )
    kind = keys.get("general.type", "model")
    if kind != "model":
        raise ModelLoadError(
            f"The GGUF file {file_name} is no model but of the type {kind}: name the file of the whole model."
        )
    architecture = keys.get("general.architecture")
    if not architecture:
        raise ModelLoadError(
            f"The GGUF file {file_name} has no general.architecture in its header: take the model's file as "
            "llama.cpp writes it."
        )
    needed = [f"{architecture}.{name}" for name in NEEDED]
    epsilons = [f"{architecture}.attention.layer_norm{of}_epsilon" for of in ("_rms", "")]
    lacking = [name for name in needed if name not in keys]
    if not any(name in keys for name in epsilons):
        lacking.append(epsilons[0])
    if "tokenizer.ggml.tokens" not in reader.fields:
        lacking.append("tokenizer.ggml.tokens")
    if lacking:
        raise ModelLoadError(
            f"The GGUF file {file_name} lacks {', '.join(lacking)} in its header: take the model's file as llama.cpp "
            "writes it."
        )


def carry_positions(file_name: str, reader: Any, config: Any) -> None:
    """Write how a file scales positions into the configuration that transformers has made of it.

    Raises:
        ModelLoadError: it scales them in a way that is not carried.
    """
    whole = getattr(config, "rope_parameters", None)
    if whole is None:
        return
    rope = whole.get("full_attention", whole)
    keys = _own_keys(reader)
    rope["rope_theta"] = float(keys.get("rope.freq_base", 10_000.0))
    scaling = _scaling(file_name, keys)
    factors = [tensor for tensor in reader.tensors if tensor.name == ROPE_FACTORS]
    is_proportional = rope.get("rope_type") == "proportional"  # it has the same factors of itself
    if factors and not is_proportional:
        if scaling:
            raise ModelLoadError(
                f"The GGUF file {file_name} scales positions both by rope.scaling and by {ROPE_FACTORS}, which is not "
                "read: take the model as safetensors."
            )
        found = llama3_scaling(np.asarray(factors[0].data, dtype=np.float64), rope["rope_theta"])
        if found is None:
            raise ModelLoadError(
                f"The tensor {ROPE_FACTORS} of the GGUF file {file_name} scales positions in another way than Llama 3, "
                "which is not read: take the model as safetensors."
            )
        scaling = found
    rope.update(scaling)


def _scaling(file_name: str, keys: Mapping[str, Any]) -> dict[str, Any]:
    """The scaling that the keys of a header name, as transformers' rope parameters; empty: none."""
    factor = float(keys.get("rope.scaling.factor", keys.get("rope.scale_linear", 0.0))) or 1.0
    kind = keys.get("rope.scaling.type", "linear")  # as llama.cpp reads a factor alone
    if kind == "none" or (kind == "linear" and factor == 1.0):
        return {}
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    if kind != "yarn":
        raise ModelLoadError(
            f"The GGUF file {file_name} scales positions by rope.scaling.type {kind!r}, which is not read: take the "
            "model as safetensors."
        )
    made = {
        "rope_type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": int(
            keys.get("rope.scaling.original_context_length", keys["context_length"])
        ),
    }
    for name in ("beta_fast", "beta_slow"):
        if f"rope.scaling.yarn_{name}" in keys:
            made[name] = float(keys[f"rope.scaling.yarn_{name}"])
    return made


def llama3_scaling(factors: np.ndarray, theta: float) -> dict[str, Any] | None:
    """The rope parameters of Llama 3 that give these factors. None: others do.

    High frequencies stay as they are and low ones are divided by one factor. Between them the multiplier is linear.

    Args:
        factors: (E / 2,) what each frequency is divided by, for heads of E numbers.
        theta: the base of the frequencies.
    """
    half = len(factors)
    turns = theta ** (-np.arange(half) / half) / (2 * math.pi)  # a token, falling
    factor = round(float(factors.max()), 4)
    share = np.clip((LENGTH * turns - LOW) / (HIGH - LOW), 0, 1)
    if not np.allclose(1 / ((1 - share) / factor + share), factors, rtol=CLOSE):
        return None
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": LOW,
        "high_freq_factor": HIGH,
        "original_max_position_embeddings": LENGTH,
    }


def require_obeyed(file_name: str, reader: Any, config: Any) -> None:
    """Refuse a factor, limit or window of the header that the configuration has nowhere.

    transformers passes over keys that it does not know, and would compute another model. `carry_positions` comes first.

    Raises:
        ModelLoadError: there is one; the message has its name and value.
    """
    known = _numbers(config.to_dict())
    for name, value in _own_keys(reader).items():
        is_window = name == "attention.sliding_window"
        if not (isinstance(value, float) or is_window) or name in FACTORS:
            continue
        never_slides = is_window and value >= getattr(config, "max_position_embeddings", math.inf)
        is_neutral = value in (0, 1) or never_slides
        if not is_neutral and not any(math.isclose(value, each, rel_tol=1e-6) for each in known):
            raise ModelLoadError(
                f"The GGUF file {file_name} has {name} = {value} in its header, which transformers does not read: take "
                "the model as safetensors."
            )


def _numbers(value: Any) -> list[float]:
    """All numbers of a configuration, nested ones too."""
    parts = value.values() if isinstance(value, dict) else value
    if isinstance(value, dict | list | tuple):
        return [number for part in parts for number in _numbers(part)]
    return [value] if isinstance(value, int | float) else []


def _own_keys(reader: Any) -> dict[str, Any]:
    """The keys of the file's architecture, without its name before them."""
    keys = keys_of(reader)
    prefix = f"{keys['general.architecture']}."
    return {
        name.removeprefix(prefix): value for name, value in keys.items() if name.startswith(prefix)
    }
