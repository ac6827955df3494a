"""Texts of settings: each setting has one, and typed values are parsed or refused with a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from llamagym_tui.config import PPOConfig, Value
from llamagym_tui.errors import ConfigError
from llamagym_tui.screens.steering.settings import read, takes, value_text
from tests import fakes

CONFIG = fakes.config(Path("run"))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ppo.lr", "a number above 0"),
        ("ppo.kl_coef", "a number from 0"),
        ("n_envs", "a whole number from 1"),
        ("generation.policy", "generate or score"),
        ("ppo.target_kl", "a number above 0 or none"),
    ],
)
def test_what_a_setting_takes_is_that_of_its_type(name: str, words: str):
    assert takes(name) == words


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("ppo.lr", " 1e-4 ", 1e-4),
        ("n_envs", "64", 64),
        ("ppo.target_kl", "None", None),
        ("generation.policy", "score", "score"),
    ],
)
def test_what_is_typed_is_read(name: str, text: str, value: Value):
    assert read(CONFIG, name, text) == value
    assert read(CONFIG, name, value_text(value)) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ppo.lr", "fast"),
        ("ppo.lr", "0"),
        ("ppo.lr", "inf"),
        ("ppo.lr", "nan"),
        ("n_envs", "1.5"),
        ("n_envs", ""),
    ],
)
def test_what_it_does_not_take_is_refused_with_what_it_takes(name: str, text: str):
    with pytest.raises(ConfigError, match=rf"takes {takes(name)}, not '{text}'"):
        read(CONFIG, name, text)


def test_what_only_several_settings_show_is_refused_too():
    with pytest.raises(ConfigError, match=r"ppo\.kl_coef is adapted by itself .* ppo\.kl_target"):
        read(fakes.config(Path("run"), ppo=PPOConfig(kl_target=0.1)), "ppo.kl_coef", "0.5")
