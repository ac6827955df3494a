"""Settings: frozen, checked once, and the same after a way over JSON."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from llamagym_tui.config import GenerationConfig, LoraConfig, PPOConfig, RunConfig, from_dict
from llamagym_tui.errors import ConfigError, UsageError


def a_run(**settings: Any) -> RunConfig:
    return RunConfig(**{"agent": "blackjack", "run_dir": "somewhere", **settings})


def test_defaults_are_within_their_own_ranges() -> None:
    assert from_dict(RunConfig, msgspec.to_builtins(a_run())) == a_run()


def test_a_run_needs_an_agent_and_a_folder() -> None:
    with pytest.raises(ConfigError, match="agent"):
        from_dict(RunConfig, {"run_dir": "somewhere"})
    with pytest.raises(ConfigError, match="run_dir"):
        from_dict(RunConfig, {"agent": "blackjack"})


@pytest.mark.parametrize(
    "settings",
    [
        {"n_envs": 0},
        {"seed": -1},
        {"seed": 2**63},
        {"episodes": 0},
        {"minutes": 0.0},
        {"minutes": float("nan")},
        {"minutes": float("inf")},
        {"threads": 0},
        {"mode": "dream"},
        {"device": "tpu"},
        {"max_turns": 0},
        {"max_turns": 10**19},
        {"minutes": 1e200},
    ],
)
def test_a_setting_outside_its_range_is_refused_by_name(settings: dict[str, Any]) -> None:
    (name,) = settings
    with pytest.raises(ConfigError, match=name):
        from_dict(RunConfig, msgspec.to_builtins(a_run(**settings)))


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (PPOConfig, {"clip_range": 0.0}),
        (PPOConfig, {"gamma": 1.01}),
        (PPOConfig, {"lam": -0.1}),
        (PPOConfig, {"lr": 0.0}),
        (PPOConfig, {"lr": float("inf")}),
        (PPOConfig, {"lr": 1e200}),
        (PPOConfig, {"reward_scale": -1e200}),
        (PPOConfig, {"entropy_coef": float("inf")}),
        (PPOConfig, {"reward_scale": float("nan")}),
        (PPOConfig, {"reward_scale": float("-inf")}),
        (PPOConfig, {"epochs": 0}),
        (PPOConfig, {"mini_batch_size": 0}),
        (PPOConfig, {"target_kl": 0.0}),
        (GenerationConfig, {"temperature": 0.0}),
        (GenerationConfig, {"max_new_tokens": 0}),
        (LoraConfig, {"r": 0}),
    ],
)
def test_a_nested_setting_outside_its_range_is_refused(
    kind: type[msgspec.Struct], settings: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        from_dict(kind, settings)


def test_a_target_for_the_kl_needs_a_weight_to_adapt() -> None:
    with pytest.raises(ConfigError, match="kl_target needs a kl_coef above 0"):
        from_dict(PPOConfig, {"kl_target": 0.1, "kl_coef": 0.0})
    assert from_dict(PPOConfig, {"kl_target": 0.1}).kl_target == 0.1


def test_an_unknown_setting_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="top_p"):
        from_dict(GenerationConfig, {"top_p": 0.8})


def test_a_refused_setting_is_the_users_mistake() -> None:
    assert issubclass(ConfigError, UsageError)


def test_settings_are_frozen() -> None:
    with pytest.raises(AttributeError):
        a_run().seed = 3  # type: ignore[misc]


def test_settings_survive_json() -> None:
    config = a_run(minutes=1.5, ppo=PPOConfig(lr=1e-5), lora=LoraConfig(target_modules=["q_proj"]))
    assert msgspec.json.decode(msgspec.json.encode(config), type=RunConfig) == config
