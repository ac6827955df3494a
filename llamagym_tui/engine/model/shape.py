"""The shape of a causal LM, read from its configuration before any weight is loaded.

Weights are counted on a model without storage (torch's meta device), so any architecture that transformers knows is
counted exactly. Notation: D hidden size, Q heads times head size, F width of the feed-forward layers, V vocabulary.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from llamagym_tui.engine.model import hub
from llamagym_tui.engine.tokens.token_tree import ForwardLimits
from llamagym_tui.runs import model_registry
from llamagym_tui.settings import LoraConfig
from llamagym_tui.user_files import file_content

MATRICES = ("Linear", "Conv1D")
"""Linear layers, the latter GPT-2's transposed ones: both have (a, b) weights, and an adapter has a + b a rank."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The sizes that memory depends on, in numbers of elements."""

    hidden: int
    """D."""
    layers: int
    queries: int
    """Q: query heads times the size of a head."""
    keys: int
    """Key-value heads times the size of a head."""
    inner: int
    """F."""
    vocabulary: int
    """V."""
    parameters: int = 0
    """Weights of the causal LM, tied ones once."""
    linears: tuple[tuple[str, int, int], ...] = ()
    """Name, inputs and outputs of each matrix that can get an adapter: all but embeddings and LM head."""

    def adapter(self, lora: LoraConfig) -> int:
        """Weights of a low-rank adapter: rank x (inputs + outputs) of each matrix that gets one."""
        if lora.layers == "head":
            return lora.rank * (self.hidden + self.vocabulary)
        targets = lora.target_modules
        return sum(
            lora.rank * (inputs + outputs)
            for name, inputs, outputs in self.linears
            if _is_target(name, targets)
        )


def shape_of(config: Any) -> ModelShape:
    """Widths only; weights are not counted."""
    text = config.get_text_config()
    hidden = _width(text, "hidden_size")
    heads = _width(text, "num_attention_heads") or 1
    head_dim = _width(text, "head_dim") or hidden // heads
    return ModelShape(
        hidden=hidden,
        layers=text.num_hidden_layers,
        queries=heads * head_dim,
        keys=(_width(text, "num_key_value_heads") or heads) * head_dim,
        inner=_width(text, "intermediate_size", "n_inner") or 4 * hidden,
        vocabulary=text.vocab_size,
    )


def _width(config: Any, *names: str) -> int:
    """The first number that is there, the largest where layers differ; else 0."""
    layers = config.per_layer_config if getattr(config, "is_heterogeneous", False) else [config]
    for name in names:
        numbers: list[Any] = []
        for layer in layers:
            value = getattr(layer, name, None)
            numbers += value if isinstance(value, list) else [value]
        named = [number for number in numbers if number]
        if named:
            return max(named)
    return 0


def counted_shape(config: Any) -> ModelShape:
    """The shape with weights counted; none of them is loaded or allocated."""
    with torch.device("meta"):
        lm = AutoModelForCausalLM.from_config(config)
    apart = {id(lm.get_input_embeddings()), id(lm.get_output_embeddings())}
    return replace(
        shape_of(config),
        parameters=sum(p.numel() for p in lm.parameters()),
        linears=tuple(
            (name, *module.weight.shape)
            for name, module in lm.named_modules()
            if type(module).__name__ in MATRICES and id(module) not in apart
        ),
    )


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


def read_config(source: str, *, local: bool) -> tuple[Any, bool]:
    """The configuration of a folder (`local`) or hub id, and True if it is that of an adapter's `base`.

    Raises:
        OSError: it is not there; ValueError: it is no configuration.
    """
    base = base_of(Path(source))
    if base:
        source = base
        local = Path(base).is_dir()
    if not local:
        hub.is_reachable(source)  # or transformers waits for a hub that does not answer
    config = AutoConfig.from_pretrained(source, local_files_only=local, trust_remote_code=False)
    return config, base is not None


def base_of(folder: Path) -> str | None:
    """The model that an adapter's folder is on, a folder or hub id; None: it holds no adapter."""
    adapter = folder / "adapter_config.json"
    if not adapter.is_file():
        return None
    base: str = json.loads(file_content(adapter))["base_model_name_or_path"]
    if not Path(base).exists() and (known := model_registry.folder_of_known(Path(base).name)):
        return str(known)  # of this machine, where the adapter comes from another one
    return base


def _is_target(name: str, targets: str | Sequence[str]) -> bool:
    if isinstance(targets, str):
        return targets == "all-linear" or name.endswith(targets)
    return any(name == target or name.endswith("." + target) for target in targets)


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
"""Log-probabilities in the place of logits; where the model gives all logits, these, too, and their gradient."""


def forward_limits(
    shape: ModelShape, dtype_bytes: int = FP32, *, scores_all: bool = False, flat: bool = False
) -> ForwardLimits:
    """Limits under which an update's forward stays within `ACTIVATIONS` and `LOGITS` bytes.

    With `scores_all` the model gives logits for every column, wanted or not.
    """
    column = activation_bytes(shape, full=True, dtype_bytes=dtype_bytes)
    scored = max(FEWEST, LOGITS // (LOGIT_COPIES * shape.vocabulary * FP32))
    tokens = max(FEWEST, min(MOST_COLUMNS, ACTIVATIONS // column))
    return ForwardLimits(min(tokens, scored) if scores_all else tokens, scored, flat)


def activation_bytes(shape: ModelShape, *, full: bool, dtype_bytes: int) -> int:
    """Bytes that a column of an update's forward keeps for its gradient, and one more layer's while it goes back."""
    of_hidden_size = 6 if full else 4  # with full fine-tuning, norms keep their inputs
    numbers = of_hidden_size * shape.hidden + 4 * shape.queries + 4 * shape.inner
    kept = numbers * dtype_bytes
    if dtype_bytes < FP32:  # norms compute in fp32
        kept += 36 * shape.hidden
    return (shape.layers + 1) * kept
