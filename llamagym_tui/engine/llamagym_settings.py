"""LlamaGym's configuration dictionaries as this engine's settings.

Names are LlamaGym's (TRL's), or ours; a group before a slash (``generate/temperature``) is dropped, as LlamaGym does.
"""

import warnings
from collections.abc import Mapping
from typing import Any

import msgspec

from llamagym_tui.config import GenerationConfig, PPOConfig, from_dict
from llamagym_tui.errors import ConfigError

SEED_TARGET_KL = 0.02
_IGNORED_GENERATION = {"do_sample", "top_p", "top_k", "pad_token_id", "eos_token_id"}
"""Settings that would make the sampled distribution differ from the scored one, or that are ours."""
_RENAMED_PPO = {
    "learning_rate": "lr",
    "ppo_epochs": "epochs",
    "init_kl_coef": "kl_coef",
    "cliprange": "clip_range",
    "vf_coef": "value_coef",
}
_FINAL = {"lr": "lr_final", "kl_coef": "kl_coef_final", "entropy_coef": "entropy_coef_final"}


def generation_settings(values: Mapping[str, Any]) -> GenerationConfig:
    """Sampling settings, without top-p and top-k: PPO scores the whole distribution, so that is what is sampled.

    Raises:
        ConfigError: a name is unknown, a value is outside its range, or sampling is off.
    """
    named = _ungrouped(values)
    if not named.get("do_sample", True):
        raise ConfigError("do_sample=False leaves PPO nothing to learn from: play with agent.act(o, greedy=True).")
    if float(named.get("top_p") or 1.0) < 1.0 or int(named.get("top_k") or 0) > 0:
        left_out = "top_p and top_k are left out: PPO scores the whole distribution, so that is what is sampled."
        warnings.warn(left_out, stacklevel=4)
    return from_dict(GenerationConfig, {k: v for k, v in named.items() if k not in _IGNORED_GENERATION})


def ppo_settings(values: Mapping[str, Any], *, use_target_kl: bool) -> PPOConfig:
    """PPO settings; a given batch size is the minibatch's too, and a given rate or weight is not scheduled.

    Raises:
        ConfigError: a name is unknown, or a value outside its range.
    """
    named = {_RENAMED_PPO.get(name, name): value for name, value in _ungrouped(values).items()}
    if use_target_kl:
        named.setdefault("target_kl", SEED_TARGET_KL)
    if "batch_size" in named:
        named.setdefault("mini_batch_size", named["batch_size"])
    for start, final in _FINAL.items():
        if start in named:
            named.setdefault(final, named[start])
    known = {field.name for field in msgspec.structs.fields(PPOConfig)}
    unknown = sorted(set(named) - known)
    if unknown:
        raise ConfigError(
            f"ppo_config_dict has unknown names: {', '.join(unknown)}; known: {', '.join(sorted(known))}."
        )
    return from_dict(PPOConfig, named)


def _ungrouped(values: Mapping[str, Any]) -> dict[str, Any]:
    return {str(name).rsplit("/", 1)[-1]: value for name, value in values.items()}
