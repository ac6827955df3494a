"""Loading models, with their value heads and tokenizers.

Only safetensors are read, and GGUF files that were converted; no model's own code is run.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

from llamagym_tui.engine.model import hub, load_faults
from llamagym_tui.engine.model.shape import ModelShape, base_of, first_length, read_config
from llamagym_tui.engine.model.sources import local_path, model_folder
from llamagym_tui.engine.model.value_head import AutoModelForCausalLMWithValueHead
from llamagym_tui.engine.own_torch import own_torch
from llamagym_tui.errors import ModelLoadError
from llamagym_tui.runs import model_registry
from llamagym_tui.runs.model_registry import BUNDLED, ModelEntry
from llamagym_tui.settings import Device, Dtype, LoraConfig, RunConfig

LARGEST_FULLY_TRAINED = 50_000_000
"""Parameters up to which all weights are trained unless the user sets it; larger models get an adapter."""


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
    there = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    if device == "auto":
        return next(name for name in ("cuda", "mps", "cpu") if there[name])
    if not there.get(str(device).split(":")[0], False):
        present = ", ".join(name for name, is_there in there.items() if is_there)
        raise ModelLoadError(f"Device {device!r} is not there; this machine has: {present}.")
    return str(device)


@own_torch()
def load_model_and_tokenizer(
    name: str = BUNDLED,
    device: Device | str = "auto",
    *,
    full_finetuning: bool | None = None,
    lora: LoraConfig | None = None,
    dtype: Dtype | None = None,
    template_arguments: Mapping[str, Any] | None = None,
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
        template_arguments: passed to the chat template whenever it renders, as ``{"enable_thinking": False}``.
    Raises:
        ModelLoadError: the model is not there, or is not a causal LM, or cannot be trained that way, as with settings
            of an adapter where all weights are trained.
    """
    name = model_registry.full_name(name)
    where = resolve_device(device)
    path = model_folder(name)
    entry = model_registry.find(name) or ModelEntry(name, short=name)
    held = weights_type(entry, dtype, full_finetuning)
    try:
        _require_loadable(name, path)
        source = str(path or name)
        options: Any = {"local_files_only": path is not None, "trust_remote_code": False}
        tokenizer = tokenizer_of(source)
        arguments: Mapping[str, Any] = entry.template_arguments
        if template_arguments is not None:
            arguments = template_arguments
            _require_in_template(name, tokenizer, arguments)
        bind_template_arguments(tokenizer, arguments)
        with torch.random.fork_rng(
            devices=[]
        ):  # a new head and adapter follow the seed, not what was drawn since
            torch.default_generator.manual_seed(torch.initial_seed())
            model = AutoModelForCausalLMWithValueHead.from_pretrained(source, dtype=held, **options)
            model.to(where)
            parameters = model.causal_lm.num_parameters()
            is_full = is_fully_trained(entry, full_finetuning, held, parameters)
            _require_meant(
                name, model.is_adapted, full_finetuning, lora, entry.lora, is_full=is_full
            )
            if not (is_full or model.is_adapted):
                model.adapt(lora or entry.lora)
                model.has_default_adapter = lora is None
        rows = model.causal_lm.get_input_embeddings().weight.shape[0]
        load_faults.require_rows(name, tokenizer, rows)
        _ = model.eval().backbone  # tried out now, and refused in a sentence
    except ModelLoadError:
        raise
    except Exception as error:
        raise ModelLoadError(load_faults.sentence(name, path, error)) from error
    warning = None
    if (longest := first_length(model.causal_lm.config)) is not None:
        warning = (
            f"Model {name!r} reads at most {longest:,} tokens here: a longer conversation would change how the "
            "positions of all others are computed (longrope)."
        )
    return LoadedModel(model, tokenizer, name, where, parameters, warning)


def _require_meant(
    name: str,
    is_adapted: bool,
    full_finetuning: bool | None,
    lora: LoraConfig | None,
    usual: LoraConfig,
    *,
    is_full: bool,
) -> None:
    """Refuse settings that mean other weights than those that would be trained."""
    if is_adapted and full_finetuning:
        raise ModelLoadError(
            f"Model {name!r} has an adapter, which alone is trained: merge it (llamagym-tui export RUN OUT --merge) to "
            "train all weights, or leave full_finetuning out."
        )
    if is_adapted and lora is not None:
        raise ModelLoadError(
            f"Model {name!r} has an adapter already, which is trained as it is: leave the settings of another out."
        )
    if is_full and lora is not None:
        names = ("r", "alpha", "target_modules")
        given = [f"lora.{each}" for each in names if getattr(lora, each) != getattr(usual, each)]
        if given:
            raise ModelLoadError(
                f"All weights of model {name!r} are trained, so {', '.join(given)} would have no effect: leave it out, "
                "or set full_finetuning=false for an adapter."
            )


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


def held_as(config: RunConfig, shape: ModelShape, *, is_adapted: bool = False) -> tuple[bool, int]:
    """True if all weights of a run's model are trained, and the bytes of a weight.

    Raises:
        ModelLoadError: weights of that type cannot be trained that way.
    """
    entry = model_registry.find(config.model) or ModelEntry(config.model, short=config.model)
    held = weights_type(entry, config.dtype, config.full_finetuning)
    is_full = is_fully_trained(entry, config.full_finetuning, held, shape.parameters)
    return is_full and not is_adapted, held.itemsize


def tokenizer_of(source: str) -> Any:
    """The tokenizer of a folder or hub id. An adapter without one takes that of its base model."""
    folder = Path(source)
    if folder.is_dir() and not load_faults.has_tokenizer(folder):
        of = base_of(folder)
        if of is None:
            raise ModelLoadError(
                f"The model in {source!r} has no tokenizer beside its weights: save its own there, by "
                "tokenizer.save_pretrained."
            )
        folder, source = Path(of), of
    return AutoTokenizer.from_pretrained(
        source, local_files_only=folder.is_dir(), trust_remote_code=False
    )


def _require_loadable(name: str, path: Path | None) -> None:
    """Refuse a hub that does not answer, and what is no causal LM; an adapter is judged by its base model.

    Raises:
        ModelLoadError: this is so; or an adapter's base model is not there.
    """
    of = base_of(path) if path is not None else None
    if of is None and path is None:
        hub.require_reachable(name)
    elif of is not None:
        adapter = str(path)
        try:
            name, path = of, local_path(of)
            if path is None:
                hub.require_reachable(of)
        except ModelLoadError as error:
            raise ModelLoadError(
                f"The adapter in {adapter!r} needs its base model {of!r}, which is not there: "
                "say where it is in its adapter_config.json (base_model_name_or_path)."
            ) from error
    config, _ = read_config(str(path or name), local=path is not None)
    load_faults.require_causal_lm(name, config)


def _require_in_template(name: str, tokenizer: Any, arguments: Mapping[str, Any]) -> None:
    """Raises ModelLoadError: the chat template of a model does not know an argument."""
    template = tokenizer.chat_template
    unknown = [each for each in arguments if not isinstance(template, str) or each not in template]
    if unknown:
        raise ModelLoadError(
            f"The chat template of model {name!r} has no {', '.join(unknown)}: leave it out of template_arguments."
        )


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
