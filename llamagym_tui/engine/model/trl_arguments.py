"""The arguments of TRL's `from_pretrained`: each is obeyed or refused by name, and so is an object in a name's place.

What transformers takes goes on to it as it is. An adapter that cannot be trained here is refused, too, before anything
is played with it.
"""

import os
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from transformers import BitsAndBytesConfig

from llamagym_tui.errors import ConfigError

NOT_OBEYED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "reward_adapter": ((None,), "rewards come from the environment"),
    "reward_adapter_name": ((None, "reward_adapter"), "rewards come from the environment"),
    "summary_dropout_prob": ((None, 0.0), "the value head has no dropout"),
    "v_head_initializer_range": ((None, 0.0), "a new value head begins at 0"),
    "v_head_init_strategy": ((None,), "a new value head begins at 0"),
    "is_trainable": ((True,), "what it holds is trained"),
    "output_loading_info": ((False,), "the model alone is returned"),
    "use_safetensors": ((None, True), "safetensors alone are read"),
}
"""Arguments of TRL's and transformers' with the values that change nothing here, and why others are refused."""

NO_CAUSAL_LM = (
    "An agent takes a loaded causal LM, not {}: "
    "loaded = load_model_and_tokenizer(name); Agent(loaded.model, loaded.tokenizer)."
)


def model_options(
    arguments: Mapping[str, Any], *, in_8_bit: bool = False, in_4_bit: bool = False
) -> dict[str, Any]:
    """What transformers gets of the arguments with which a model is loaded by its name or path.

    Raises:
        ConfigError: one is not obeyed here, or two contradict one another; the message names them.
    """
    options = dict(arguments)
    for name, (accepted, why) in NOT_OBEYED.items():
        if name in options and options.pop(name) not in accepted:
            raise ConfigError(f"{name}={arguments[name]!r:.60} is refused, as {why}: leave it out.")
    if "torch_dtype" in options:
        older = options.pop("torch_dtype")
        if options.setdefault("dtype", older) != older:
            raise ConfigError("dtype and torch_dtype are one setting: leave one of them out.")
    bits = [f"load_in_{count}bit" for count, wanted in ((8, in_8_bit), (4, in_4_bit)) if wanted]
    if len(bits) > 1 or (bits and options.get("quantization_config") is not None):
        raise ConfigError(
            f"{' and '.join(bits)} and quantization_config are one setting: leave all but one out."
        )
    if bits:
        options["quantization_config"] = BitsAndBytesConfig(
            load_in_8bit=in_8_bit, load_in_4bit=in_4_bit
        )
    return {"dtype": torch.float32, "use_safetensors": True} | options


def require_name(source: Any) -> None:
    """Raises ConfigError: this is neither a name nor a path, nor a causal LM of transformers or PEFT."""
    if not isinstance(source, str | os.PathLike):
        raise ConfigError(
            f"from_pretrained takes the name or path of a model, or a loaded causal LM, not {kind_of(source)}."
        )


def require_untouched(arguments: Mapping[str, Any]) -> None:
    """Raises ConfigError: arguments are given that say how to load a model which is loaded already."""
    if arguments:
        names = ", ".join(sorted(arguments))
        raise ConfigError(
            f"{names}: this is about loading, and the model is loaded already; leave it out, or give its name."
        )


def require_causal_lm(lm: Any) -> None:
    """Raises ConfigError: a loaded model does not write text on, or its adapter cannot be trained here."""
    kinds = {each.__name__ for each in type(lm).__mro__}
    if "PeftMixedModel" in kinds:
        raise ConfigError("Adapters of mixed kinds are not trained here: give a PeftModel.")
    if "PeftModel" in kinds:
        _require_trainable_adapter(lm)
        lm = lm.get_base_model()
        kinds = {each.__name__ for each in type(lm).__mro__}
    is_causal = any(
        part in kind for kind in kinds for part in ("CausalLM", "LMHead", "Conditional")
    )
    if not is_causal or lm.config.is_encoder_decoder or lm.get_output_embeddings() is None:
        raise ConfigError(NO_CAUSAL_LM.format(kind_of(lm)))
    if getattr(lm, "_hf_peft_config_loaded", False):
        raise ConfigError(
            "The adapter of this model was put on by transformers, which keeps it apart from what is trained and "
            "saved: load the base model, and then the adapter by peft.PeftModel.from_pretrained."
        )


def require_peft_config(config: Any) -> None:
    """Raises ConfigError if this describes no adapter; warns of a dropout, which stays off."""
    from peft import PeftConfig

    if not isinstance(config, PeftConfig):
        raise ConfigError(
            f"peft_config takes a LoraConfig, or a configuration of PEFT's, not {kind_of(config)}."
        )
    for name, value in vars(config).items():
        if "dropout" in name and isinstance(value, float) and value > 0:
            warnings.warn(
                f"{name}={value} is left out: PPO scores the distribution that was sampled, so dropout stays off.",
                stacklevel=4,
            )


def kind_of(value: Any) -> str:
    """The kind of an object, with the package that it is from."""
    kind = type(value)
    package = kind.__module__.partition(".")[0]
    return kind.__name__ if package == "builtins" else f"{package}'s {kind.__name__}"


def _require_trainable_adapter(lm: Any) -> None:
    """Raises ConfigError: the adapters of a PeftModel are not the one that would be trained and saved."""
    names = list(lm.peft_config)
    if names != ["default"]:
        raise ConfigError(
            f"One adapter named 'default' is trained and saved, and this model has {', '.join(map(repr, names))}: "
            "merge or delete the others, and load it with adapter_name='default'."
        )
    config = lm.peft_config["default"]
    if config.is_prompt_learning:
        raise ConfigError(
            f"An adapter of the kind {config.peft_type.value} stands before the prompt, and is neither trained nor "
            "played with here: take one within the layers, as LoRA."
        )
