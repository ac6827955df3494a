"""Settings: one table with ranges and words, what may change live, and how typed words become values."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from llamagym_tui.errors import ConfigError
from llamagym_tui.settings import (
    FINAL,
    LIVE,
    OPTIONS,
    SCHEDULED,
    Change,
    GenerationConfig,
    LoraConfig,
    PPOConfig,
    RunConfig,
    changed,
    changes_since,
    changes_to_restore,
    flat,
    from_dict,
    with_final_values,
)
from llamagym_tui.settings.typed import assigned, merged, takes, typed_value
from tests import fakes

CONFIG = RunConfig(agent="blackjack", run_dir="r", n_envs=16, ppo=PPOConfig(lr=1e-3, lr_final=1e-4))


def test_every_option_has_its_words_and_a_flag_or_a_title_of_its_own() -> None:
    assert set(OPTIONS) <= set(flat(CONFIG))
    assert all(option.help.endswith(".") for option in OPTIONS.values())
    assert all(option.flag or option.title for option in OPTIONS.values())
    flags = [option.flag for option in OPTIONS.values() if option.flag]
    titles = [option.title for option in LIVE.values()]
    assert (len(set(flags)), len(set(titles))) == (len(flags), len(titles))


def test_a_setting_that_moves_along_a_line_has_an_end() -> None:
    for name in SCHEDULED:
        assert FINAL[f"ppo.{name}"] in LIVE


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (RunConfig, {"n_envs": 0}),
        (RunConfig, {"seed": -1}),
        (RunConfig, {"minutes": float("nan")}),
        (RunConfig, {"minutes": float("inf")}),
        (RunConfig, {"mode": "dream"}),
        (RunConfig, {"max_turns": 10**19}),
        (PPOConfig, {"clip_range": 0.0}),
        (PPOConfig, {"gamma": 1.01}),
        (PPOConfig, {"reward_scale": float("-inf")}),
        (GenerationConfig, {"temperature": 0.0}),
        (GenerationConfig, {"top_p": 0.8}),
        (LoraConfig, {"r": 0}),
    ],
)
def test_a_setting_outside_its_range_is_refused_by_name(
    kind: type[msgspec.Struct], given: dict[str, Any]
) -> None:
    needed = {"agent": "blackjack", "run_dir": ""} if kind is RunConfig else {}
    with pytest.raises(ConfigError, match=next(iter(given))):
        from_dict(kind, {**needed, **given})


def test_settings_survive_json() -> None:
    config = msgspec.structs.replace(CONFIG, lora=LoraConfig(target_modules=["q_proj"]))
    assert msgspec.json.decode(msgspec.json.encode(config), type=RunConfig) == config


def test_a_change_touches_what_it_names_and_nothing_else() -> None:
    now = changed(CONFIG, {"ppo.clip_range": 0.1, "n_envs": 8})
    ppo = msgspec.structs.replace(CONFIG.ppo, clip_range=0.1)
    assert now == msgspec.structs.replace(CONFIG, n_envs=8, ppo=ppo)
    assert with_final_values({"ppo.lr": 3e-4}) == {"ppo.lr": 3e-4, "ppo.lr_final": 3e-4}
    assert with_final_values({"ppo.lr": 1.0, "ppo.lr_final": 1e-5})["ppo.lr_final"] == 1e-5


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"seed": 1}, "seed"),
        ({"ppo.warp": 1}, "ppo.warp"),
        ({"ppo.lr": -1.0}, "ppo.lr"),
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
    said = msgspec.structs.replace(CONFIG, n_envs=32)
    assert changes_to_restore(said, changes) == {"ppo.target_kl": 0.05}


def test_typed_words_become_what_their_settings_take() -> None:
    said = ["ppo.lr=1", "ppo.lr=1e-3", "ppo.whiten_advantages=false", "ppo.reward_scale=none"]
    said += ["max_turns=50", 'lora.target_modules=["q_proj", "v_proj"]', "sft_data=a=b.jsonl"]
    assert assigned(said) == {
        "ppo.lr": 1e-3,
        "ppo.whiten_advantages": False,
        "ppo.reward_scale": None,
        "max_turns": 50,
        "lora.target_modules": ["q_proj", "v_proj"],
        "sft_data": "a=b.jsonl",
    }


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ppo.lr", "a number above 0"),
        ("ppo.kl_coef", "a number from 0"),
        ("ppo.gamma", "a number from 0 to 1"),
        ("n_envs", "a whole number from 1"),
        ("generation.policy", "generate or score"),
        ("ppo.target_kl", "a number above 0 or none"),
        ("ppo.correct_spread", "true or false"),
    ],
)
def test_what_a_setting_takes_is_told_where_it_is_refused(name: str, words: str) -> None:
    assert takes(name) == words
    for text in ("fast", "nan", ""):
        with pytest.raises(ConfigError, match=f"{name} takes {words}, not '{text}'"):
            typed_value(name, text)


@pytest.mark.parametrize(
    ("assignment", "sentence"),
    [
        ("ppo.lr", "A setting is given as NAME=VALUE"),
        ("lora.target_modules=[1", "lora.target_modules takes"),
        ("clip_range=1", "There is no setting 'clip_range'; near it: ppo.clip_range"),
        ("zzzz=1", "no setting 'zzzz'; the config.json of every run has them all."),
        ("run_dir=x", "by --run-dir"),
        ("agent=x", "by the argument AGENT"),
    ],
)
def test_a_mistake_gets_a_sentence_that_names_it(assignment: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        assigned([assignment])
    assert sentence in str(error.value)


def test_the_standard_error_of_a_batch_counts_what_shared_seeds_leave() -> None:
    # Deviations of 2 over 17 episodes: 2 / sqrt(16), and twice that where seeds make it a quarter as telling.
    batch = replace(fakes.STATS, episodes=17, return_std=2.0, design_effect=1.0)
    assert batch.return_stderr == 0.5
    assert replace(batch, design_effect=4.0).return_stderr == 1.0
    assert replace(batch, episodes=1).return_stderr == 0.0


def test_what_is_above_counts_section_by_section() -> None:
    below = {"seed": 1, "ppo": {"lr": 1e-3, "epochs": 2}}
    assert merged(below, {"ppo": {"lr": 1e-4}, "lora": {"r": 4}}) == {
        "seed": 1,
        "ppo": {"lr": 1e-4, "epochs": 2},
        "lora": {"r": 4},
    }
