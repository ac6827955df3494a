"""Which settings may change live, and what follows from a change."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from llamagym_tui.config import (
    FIGURES,
    FINAL,
    LIVE,
    SCHEDULED,
    Change,
    GenerationConfig,
    PPOConfig,
    RunConfig,
    changed,
    changes_since,
    changes_to_restore,
    value_of,
    with_final_values,
)
from llamagym_tui.errors import ConfigError

CONFIG = RunConfig(agent="blackjack", run_dir="r", n_envs=16, ppo=PPOConfig(lr=1e-3, lr_final=1e-4))


def test_every_live_setting_is_one_of_a_run() -> None:
    assert all(not isinstance(value_of(CONFIG, name), dict) for name in LIVE)


def test_a_change_touches_what_it_names_and_nothing_else() -> None:
    now = changed(CONFIG, {"ppo.clip_range": 0.1, "n_envs": 8})
    expected = msgspec.structs.replace(
        CONFIG, n_envs=8, ppo=msgspec.structs.replace(CONFIG.ppo, clip_range=0.1)
    )
    assert now == expected


def test_a_setting_on_a_line_stands_still_once_it_is_changed() -> None:
    assert with_final_values({"ppo.lr": 3e-4}) == {"ppo.lr": 3e-4, "ppo.lr_final": 3e-4}
    assert with_final_values({"ppo.lr": 3e-4, "ppo.lr_final": 1e-5}) == {
        "ppo.lr": 3e-4,
        "ppo.lr_final": 1e-5,
    }


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"seed": 1}, "seed"),
        ({"ppo.warp": 1}, "ppo.warp"),
        ({"ppo.lr": -1.0}, "ppo.lr"),
        ({"ppo.lr": "fast"}, "ppo.lr"),
        ({"generation.temperature": 0.0}, "generation.temperature"),
        ({"n_envs": None}, "n_envs"),
    ],
)
def test_a_change_that_may_not_be_is_refused_by_name(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        changed(CONFIG, changes)


def test_a_resumed_run_takes_back_what_was_not_said_anew() -> None:
    changes = changes_since(CONFIG, changed(CONFIG, {"n_envs": 8, "ppo.target_kl": 0.05}))
    assert changes == {"ppo.target_kl": Change(None, 0.05), "n_envs": Change(16, 8)}
    assert changes_to_restore(CONFIG, changes) == {"ppo.target_kl": 0.05, "n_envs": 8}
    said = msgspec.structs.replace(CONFIG, n_envs=32, generation=GenerationConfig())
    assert changes_to_restore(said, changes) == {"ppo.target_kl": 0.05}


def test_no_two_live_settings_claim_the_same_place() -> None:
    places = [live.place for live in LIVE.values()]
    assert places == sorted(set(places))


def test_a_setting_that_moves_along_a_line_has_an_end_and_a_figure() -> None:
    assert len(SCHEDULED) == len(FINAL)
    for name in SCHEDULED:
        assert FINAL[f"ppo.{name}"] in LIVE
        assert name in FIGURES
