"""The configuration of a causal LM, and the sizes that follow from it before any weight is loaded.

Notation: D hidden size, Q heads times head size, F width of the feed-forward layers.
"""

import json
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from llamagym_tui.engine.model.sources import is_local
from llamagym_tui.engine.tokens.token_tree import ForwardLimits
from llamagym_tui.errors import ModelLoadError
from llamagym_tui.runs import model_registry
from llamagym_tui.user_files import file_content

GIB = 2**30
FP32 = 4
"""Bytes of a number."""
ACTIVATIONS = 2 * GIB
"""Bytes that activations of one forward of an update may take."""
LOGITS = 2 * GIB
"""Bytes that its logits may take."""
MOST_COLUMNS = 16_384
"""Columns of one forward at most, however small the model."""
FEWEST = 256
"""Columns and scored tokens of one forward that are allowed however large the model."""
LOGIT_COPIES = 3
"""Log-probabilities in the place of logits, their gradient, and one more while they are computed."""


def forward_limits(config: Any, dtype_bytes: int = FP32, *, flat: bool = False) -> ForwardLimits:
    """Limits under which an update's forward stays within `ACTIVATIONS` and `LOGITS` bytes.

    Args:
        config: of the model.
        dtype_bytes: bytes of a weight.
        flat: True if a forward computes each column of a tree once.
    """
    text = config.get_text_config()
    columns = ACTIVATIONS // activation_bytes(text, dtype_bytes)
    scored = LOGITS // (LOGIT_COPIES * text.vocab_size * FP32)
    return ForwardLimits(
        max(FEWEST, min(MOST_COLUMNS, columns)),
        max(FEWEST, scored),
        flat,
    )


def activation_bytes(config: Any, dtype_bytes: int) -> int:
    """Bytes that a column of an update's forward keeps for its gradient, and one more layer's while it goes back."""
    hidden = config.hidden_size  # D
    heads = _width(config, "num_attention_heads") or 1
    queries = heads * (_width(config, "head_dim") or hidden // heads)  # Q
    inner = _width(config, "intermediate_size") or _width(config, "n_inner") or 4 * hidden  # F
    kept = (6 * hidden + 4 * queries + 4 * inner) * dtype_bytes
    if dtype_bytes < FP32:  # norms compute in fp32
        kept += 36 * hidden
    return (config.num_hidden_layers + 1) * kept


def _width(config: Any, name: str) -> int:
    """A size in a configuration, the largest where layers differ; 0 where it has none."""
    value = getattr(config, name, None) or 0
    return max(value) if isinstance(value, list) else value


def parameters_of(config: Any) -> int:
    """The number of weights, tied ones once, counted on a model without storage."""
    with torch.device("meta"):
        lm = AutoModelForCausalLM.from_config(config)
    return sum(weight.numel() for weight in lm.parameters())


def context_of(config: Any) -> int | None:
    """The longest conversation that a model reads, in tokens. None: it has no limit."""
    text = config.get_text_config()
    if getattr(text, "alibi", False):
        return None
    most = getattr(text, "max_position_embeddings", None)
    first = first_length(config)
    if first is None or most is None:
        return first or most
    return min(first, most)


def first_length(config: Any) -> int | None:
    """Tokens up to which a longrope model scales positions by its first list of factors. None: it is no such model.

    A longer row would change the positions of all rows of a forward, so conversations end there.
    """
    rope = getattr(config.get_text_config(), "rope_parameters", None) or {}
    by_layer = [each for each in rope.values() if isinstance(each, dict)]
    lengths = [
        each["original_max_position_embeddings"]
        for each in by_layer or [rope]
        if each.get("rope_type") == "longrope" and each["short_factor"] != each["long_factor"]
    ]
    return min(lengths, default=None)


def read_config(source: str) -> Any:
    """The configuration of a folder or hub id; of its base model where there is an adapter.

    Raises:
        OSError: it is not there; ValueError: it is no configuration.
    """
    source = base_of(Path(source)) or source
    return AutoConfig.from_pretrained(source, local_files_only=is_local(source))


def base_of(folder: Path) -> str | None:
    """The model that an adapter's folder is on, a folder or hub id; None: it holds no adapter.

    Raises:
        ModelLoadError: the base model is a folder that is not there.
    """
    adapter = folder / "adapter_config.json"
    if not adapter.is_file():
        return None
    base: str = json.loads(file_content(adapter))["base_model_name_or_path"]
    if Path(base).exists():
        return base
    if known := model_registry.folder_of_known(Path(base).name):
        return str(known)  # of this machine, where the adapter comes from another one
    if Path(base).is_absolute():
        raise ModelLoadError(
            f"The adapter in {str(folder)!r} needs its base model {base!r}, which is not there: write its place now "
            "into adapter_config.json."
        )
    return base
