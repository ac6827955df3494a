"""Loading models, with their value heads and tokenizers, where they fit into the free memory.

Only safetensors are read, and GGUF files that were converted; no model's own code is run.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch
from transformers import AutoTokenizer

from llamagym_tui.engine.model import load_faults
from llamagym_tui.engine.model.shape import (
    GIB,
    base_of,
    first_length,
    parameters_of,
    read_config,
)
from llamagym_tui.engine.model.sources import is_local, model_folder
from llamagym_tui.engine.model.value_head import AutoModelForCausalLMWithValueHead
from llamagym_tui.engine.own_torch import own_torch
from llamagym_tui.errors import ModelLoadError, UsageError
from llamagym_tui.runs import model_registry
from llamagym_tui.runs.model_registry import BUNDLED, ModelEntry
from llamagym_tui.settings import Device, Dtype, LoraConfig, RunConfig

LARGEST_FULLY_TRAINED = 50_000_000
"""Parameters up to which all weights are trained unless the user sets it; larger models get an adapter."""
LIMIT = Path("/sys/fs/cgroup/memory.max")
TRAINED = 3
"""Elements for each trained weight: its gradient and Adam's two moments."""


@dataclass(frozen=True)
class LoadedModel:
    """A model that is ready to play."""

    model: AutoModelForCausalLMWithValueHead
    tokenizer: Any
    name: str
    device: str
    parameters: int
    """Weights of the causal LM; value head and a fresh adapter excluded."""
    warning: str | None = None
    """For people, before it plays."""


def resolve_device(device: Device | str) -> str:
    """The torch device of a setting; raises ModelLoadError if it is not there."""
    if device == "auto":
        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ModelLoadError(
            f"Device {device!r} is not there: take --device auto, or cpu."
        ) from error
    return str(device)


@own_torch()
def load_model_and_tokenizer(
    name: str = BUNDLED,
    device: Device | str = "auto",
    *,
    full_finetuning: bool | None = None,
    lora: LoraConfig | None = None,
    dtype: Dtype | None = None,
) -> LoadedModel:
    """Load a causal LM with a value head, and its tokenizer.

    Defaults are those of the model's entry in the registry, where it has one. A token for gated models is
    taken from HF_TOKEN, or from where ``hf auth login`` left it. A new value head and a new adapter begin at random by
    the seed of the last ``torch.manual_seed``, or torch's own: the same for each model that is loaded until the next.

    Args:
        name: ``bundled``, a registry name, a local folder (a run's ``model/`` too), a GGUF file, or a hub id.
        device: where it goes.
        full_finetuning: train all weights, or an adapter. None: all up to `LARGEST_FULLY_TRAINED` parameters.
        lora: settings of the adapter.
        dtype: of the weights; else float32.
    Raises:
        ModelLoadError: the model is not there, or is not a causal LM, or cannot be trained that way.
    """
    name = model_registry.full_name(name)
    where = resolve_device(device)
    entry = model_registry.find(name) or ModelEntry(name, short=name)
    held = weights_type(entry, dtype, full_finetuning)
    with reading(name) as source:
        is_adapter = base_of(Path(source)) is not None
        if is_adapter and (full_finetuning or lora is not None):
            raise ModelLoadError(
                f"Model {name!r} has an adapter, which is trained as it is: leave full_finetuning and lora out, or "
                "merge it (llamagym-tui export RUN OUT --merge)."
            )
        tokenizer = tokenizer_of(source, entry)
        # A new head and adapter follow the seed, not what was drawn since.
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(torch.initial_seed())
            model = AutoModelForCausalLMWithValueHead.from_pretrained(
                source, dtype=held, local_files_only=is_local(source)
            )
            model.to(where)
            parameters = model.causal_lm.num_parameters()
            is_full = is_fully_trained(entry, full_finetuning, held, parameters)
            if not (is_full or model.is_adapted):
                model.adapt(lora or entry.lora)
                model.has_default_adapter = lora is None
        rows = model.causal_lm.get_input_embeddings().weight.shape[0]
        load_faults.require_rows(name, tokenizer, rows)
        _ = model.eval().backbone  # tried out now, and refused in a sentence
    warning = None
    if (longest := first_length(model.causal_lm.config)) is not None:
        warning = (
            f"Model {name!r} reads at most {longest:,} tokens here: a longer conversation would change how the "
            "positions of all others are computed (longrope)."
        )
    return LoadedModel(model, tokenizer, name, where, parameters, warning)


@contextmanager
def reading(name: str, *, weights: bool = True) -> Iterator[str]:
    """The folder or hub id of a model's files, of which every fault is one sentence.

    Args:
        name: the full name of the model.
        weights: False if only its configuration and tokenizer are read.
    Raises:
        ModelLoadError: it is not there, is not a causal LM, or cannot be read.
    """
    path = model_folder(name, weights=weights)
    source = str(path or name)
    try:
        load_faults.require_causal_lm(name, read_config(source))
        yield source
    except ModelLoadError:
        raise
    except Exception as error:
        raise ModelLoadError(load_faults.sentence(name, path, error)) from error


def tokenizer_of(source: str, entry: ModelEntry) -> Any:
    """The tokenizer of a folder or hub id, with the entry's template arguments.

    An adapter without one takes that of its base model.
    """
    base = base_of(Path(source))
    if base is not None and not any(Path(source).glob("tokenizer*")):
        source = base
    tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=is_local(source))
    bind_template_arguments(tokenizer, entry.template_arguments)
    return tokenizer


def is_fully_trained(
    entry: ModelEntry, full: bool | None, held: torch.dtype, parameters: int
) -> bool:
    """True if all weights are trained, False for an adapter."""
    if full is not None:
        return full
    is_small = entry.full_finetuning or parameters <= LARGEST_FULLY_TRAINED
    return is_small and held == torch.float32


def weights_type(entry: ModelEntry, dtype: Dtype | None, full: bool | None) -> torch.dtype:
    """Type of the weights; raises ModelLoadError if weights of that type cannot be trained that way."""
    if full and dtype == "bfloat16":
        raise ModelLoadError(
            "Weights of bfloat16 are too coarse for the small steps of full fine-tuning: use float32, or an adapter."
        )
    chosen = dtype or ("float32" if full else entry.dtype)
    return torch.bfloat16 if chosen == "bfloat16" else torch.float32


def bind_template_arguments(tokenizer: Any, arguments: Mapping[str, Any]) -> None:
    """Write default arguments into a tokenizer's chat template; without a template nothing happens.

    So every rendering has them, and so has the tokenizer that is saved with a trained model.

    Args:
        arguments: booleans, numbers and strings by name; a rendering may pass others.
    """
    defaults = "".join(
        f"{{%- if {name} is not defined %}}{{%- set {name} = {value!r} %}}{{%- endif %}}"
        for name, value in arguments.items()
    )
    template = tokenizer.chat_template
    if isinstance(template, str) and defaults and not template.startswith(defaults):
        tokenizer.chat_template = defaults + template


def require_memory(config: RunConfig, *, learns: bool) -> None:
    """Raises UsageError if a run's weights, gradients and moments do not fit into the free memory.

    A model whose configuration cannot be read is left to the loading, which explains it.
    """
    device = resolve_device(config.device)
    try:
        source = str(model_folder(config.model) or config.model)
        parameters = parameters_of(read_config(source))
        is_adapted = base_of(Path(source)) is not None
    except Exception:
        return
    entry = model_registry.find(config.model) or ModelEntry(config.model, short=config.model)
    held = weights_type(entry, config.dtype, config.full_finetuning)
    is_full = is_fully_trained(entry, config.full_finetuning, held, parameters)
    trains_all = learns and is_full and not is_adapted
    needed = parameters * held.itemsize * (1 + TRAINED if trains_all else 1)
    there = free_memory(device)
    if needed > there:
        raise UsageError(
            f"Model {config.model!r} would take {as_gib(needed)} for its weights and their training, and "
            f"{as_gib(there)} are free on {device}; take a smaller model, or an adapter (--set full_finetuning=false)."
        )


def as_gib(amount: float) -> str:
    """Bytes for people."""
    return f"{amount / GIB:.1f} GiB"


def free_memory(device: str) -> int:
    """Bytes that are free where the model goes."""
    if device.startswith("cuda"):
        return torch.cuda.mem_get_info(torch.device(device))[0]
    if device.startswith("mps"):
        return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
    return host_free(LIMIT)


def host_free(limit: Path) -> int:
    """Bytes of the host that are free, at most the limit in a Linux control group's file, as containers have one."""
    available: int = psutil.virtual_memory().available
    try:
        return min(available, int(limit.read_text()))
    except (OSError, ValueError):  # no such group, or no limit
        return available
