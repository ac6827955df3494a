"""Values of settings in the dialog: as they are typed, read and shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from llamagym_tui.errors import ConfigError
from llamagym_tui.screens.steering.settings import read, scheduled_value, value_text
from llamagym_tui.settings import Value
from tests import fakes

CONFIG = fakes.config(Path("run"))


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


def test_what_cannot_change_live_is_refused():
    with pytest.raises(ConfigError, match="seed cannot be changed"):
        read(CONFIG, "seed", "1")


def test_a_setting_on_its_line_is_told_by_the_last_update():
    assert scheduled_value("ppo.lr", fakes.STATS) == fakes.STATS.lr
    assert scheduled_value("ppo.lr", None) is None
    assert scheduled_value("ppo.kl_coef", fakes.STATS) is None, "no figure"
    assert scheduled_value("n_envs", fakes.STATS) is None
