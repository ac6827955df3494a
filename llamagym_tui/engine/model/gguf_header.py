"""The header of a GGUF file beside the configuration that transformers makes of it.

transformers reads some keys of a header and passes over all others without a word. Here scaled positions are carried
into the configuration, and a file that would be computed otherwise than its header says is refused by the key's name.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from llamagym_tui.errors import ModelLoadError

NEEDED = ("context_length", "embedding_length", "block_count", "attention.head_count")
"""Keys without which transformers would take the sizes of another model."""
ROPE_FACTORS = "rope_freqs.weight"
"""The tensor by which the frequencies of positions are divided; Llama 3.1 and later have it."""
NAMES: Mapping[str, Sequence[str]] = {
    "attention.head_count": ("num_attention_heads",),
    "attention.head_count_kv": ("num_key_value_heads", "num_kv_heads", "num_attention_heads"),
    "attention.layer_norm_rms_epsilon": ("rms_norm_eps", "norm_eps", "layer_norm_epsilon"),
    "attention.layer_norm_epsilon": (
        "layer_norm_eps",
        "layer_norm_epsilon",
        "norm_epsilon",
        "norm_eps",
    ),
    "attention.key_length": ("global_head_dim", "head_dim"),
    "attention.value_length": ("global_head_dim", "head_dim"),
    "attention.key_length_swa": ("head_dim",),
    "attention.value_length_swa": ("head_dim",),
    "attention.sliding_window": ("sliding_window",),
    "attention.shared_kv_layers": ("num_kv_shared_layers",),
    "attn_logit_softcapping": ("attn_logit_softcapping",),
    "final_logit_softcapping": ("final_logit_softcapping",),
    "logit_scale": ("logit_scale",),
    "use_parallel_residual": ("use_parallel_residual",),
    "expert_count": ("num_experts", "num_local_experts"),
    "expert_used_count": ("num_experts_per_tok",),
    "embedding_length_per_layer_input": ("hidden_size_per_layer_input",),
}
"""Keys that must be what the configuration has, and the names that architectures have for each; the first one counts.
A number that the configuration does not have must be neutral."""
SEEN_IN_WEIGHTS = frozenset({
    "vocab_size", "embedding_length", "block_count", "feed_forward_length", "expert_feed_forward_length",
    "expert_shared_feed_forward_length", "expert_shared_count", "nextn_predict_layers", "shortconv.l_cache",
    "ssm.conv_kernel", "ssm.inner_size", "ssm.state_size", "ssm.time_step_rank", "ssm.group_count",
})  # fmt: skip
"""Sizes that cannot be wrong if every weight has its shape."""
OF_ARCHITECTURE = frozenset({
    "full_attention_interval", "rope.dimension_sections", "expert_gating_func", "expert_weights_norm",
    "attention.sliding_window_pattern", "rope.dimension_count_swa",
})  # fmt: skip
"""Keys that transformers reads or knows of the architectures that have them."""
SAYS_NOTHING = frozenset(
    {"context_length", "tensor_data_layout", "rope.scaling.finetuned", "pooling_type"}
)
"""Keys that change nothing of what a causal LM computes."""
NEUTRAL_IF_ONE = ("scale", "_factor")
"""Ends of the names of factors, which change nothing if they are 1; any other number changes nothing if it is 0."""
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


CARRIED = frozenset({
    "rope.freq_base", "rope.scale_linear", "rope.scaling.type", "rope.scaling.factor",
    "rope.scaling.original_context_length", "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow",
})  # fmt: skip
"""Keys that `carry_positions` reads."""


def llama3_scaling(factors: np.ndarray, theta: float) -> dict[str, Any] | None:
    """The rope parameters of Llama 3 that give these factors; None: none do.

    Args:
        factors: (E / 2,) what each frequency is divided by, for heads of E numbers.
        theta: the base of the frequencies.

    High frequencies stay as they are and low ones are divided by one factor F. Between them the multiplier is
    (1 - s) / F + s, where s = (L * f / 2 pi - low) / (high - low) at frequency f and original length L is linear in f.
    """
    half = len(factors)
    frequencies = theta ** (-np.arange(half) / half) / (2 * math.pi)  # turns a token, falling
    factor = round(float(factors.max()), 4)
    if factors.min() < 1 - CLOSE:
        return None
    if factor <= 1 + CLOSE:
        return {}
    smooth = (1 / factors - 1 / factor) / (1 - 1 / factor)  # s, where it is between 0 and 1
    is_between = (smooth > CLOSE) & (smooth < 1 - CLOSE)
    unscaled = frequencies[smooth >= 1 - CLOSE]
    scaled = frequencies[smooth <= CLOSE]
    if not (is_between.any() or len(unscaled)):
        return {"rope_type": "linear", "factor": factor}
    # The line through two places where s is known. Of one place, or none, any line will do that leaves the frequencies
    # around it unscaled or wholly scaled.
    x, s = frequencies[is_between], smooth[is_between]
    if len(x) >= 2:
        slope = (s[0] - s[-1]) / (x[0] - x[-1])
        at, value = x[0], s[0]
    else:
        at, value = (x[0], s[0]) if len(x) else (scaled.max(), 0.0)
        slopes = [(1 - value) / (unscaled.min() - at)] if len(unscaled) else []
        if value > 0:
            slopes.append(value / (at - scaled.max()))
        slope = max(slopes)
    offset = slope * at - value  # low / (high - low)
    if offset <= 0:
        return None
    length = round(slope / offset)  # L, where low is about 1
    for digits in (4, 12):  # the numbers of a real model are round ones
        low = round(offset * length / slope, digits)
        high = round(low + length / slope, digits)
        again = np.clip((length * frequencies - low) / (high - low), 0, 1)
        given = 1 / ((1 - again) / factor + again)
        if np.allclose(given, factors, rtol=CLOSE):
            return {
                "rope_type": "llama3",
                "factor": factor,
                "low_freq_factor": low,
                "high_freq_factor": high,
                "original_max_position_embeddings": length,
            }
    return None


def require_obeyed(file_name: str, reader: Any, config: Any) -> None:
    """Refuse a file with a key that changes what its model computes, and of which the configuration has nothing.

    Raises:
        ModelLoadError: there is one; the message has its name and value.
    """
    architecture = reader.fields["general.architecture"].contents()
    for name, value in _own_keys(reader).items():
        if name in CARRIED | SEEN_IN_WEIGHTS | OF_ARCHITECTURE | SAYS_NOTHING or _is_obeyed(
            name, value, config
        ):
            continue
        raise ModelLoadError(
            f"The GGUF file {file_name} has {architecture}.{name} = {value!r:.60} in its header, which transformers "
            "does not read, so it would be computed as another model: take the model as safetensors."
        )


def _is_obeyed(name: str, value: Any, config: Any) -> bool:
    """Whether the configuration has what a key says, or the key says what any model does."""
    found: Any = None
    if name in NAMES:
        found = next((getattr(config, each) for each in NAMES[name] if hasattr(config, each)), None)
    elif name == "rope.dimension_count":
        found = _rotated(config)
    elif name == "rope.freq_base_swa":
        found = (
            (getattr(config, "rope_parameters", None) or {})
            .get("sliding_attention", {})
            .get("rope_theta")
        )
    if isinstance(value, list) and value:
        value = max(value)  # of layers that differ, as transformers takes it
    if found is not None:
        return math.isclose(found, value, rel_tol=1e-6)
    if name == "attention.causal":
        return value is True
    if name == "attention.sliding_window":  # it never slides
        return value == 0 or value >= getattr(config, "max_position_embeddings", math.inf)
    if name in ("attention.key_length", "attention.value_length"):
        return value * config.num_attention_heads == config.hidden_size
    if name.endswith(NEUTRAL_IF_ONE) and value == 1:
        return True
    return not value


def _rotated(config: Any) -> int:
    """Numbers of a head that its position turns."""
    head = getattr(config, "global_head_dim", None) or getattr(config, "head_dim", None)
    head = head or config.hidden_size // config.num_attention_heads
    rope = getattr(config, "rope_parameters", None) or {}
    share = rope.get("partial_rotary_factor", 1.0)
    return int(head * share)


def _own_keys(reader: Any) -> dict[str, Any]:
    """The keys of the file's architecture, without its name before them."""
    keys = keys_of(reader)
    prefix = f"{keys['general.architecture']}."
    return {
        name.removeprefix(prefix): value for name, value in keys.items() if name.startswith(prefix)
    }
