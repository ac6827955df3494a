"""``--set NAME=VALUE``: words become settings, and every mistake is named as it was typed."""

from __future__ import annotations

import pytest

from llamagym_tui.config import RunConfig, from_dict
from llamagym_tui.errors import UsageError
from llamagym_tui.setup.assignments import evaluation_settings, merged, settings


def test_words_become_what_their_settings_take() -> None:
    said = [
        "ppo.lr=1e-3",
        "ppo.epochs=4",
        "ppo.whiten_advantages=false",
        "ppo.target_kl=0.02",
        "ppo.credit=token",
    ]
    assert settings([*said, "generation.temperature=0.7", "max_turns=50"]) == {
        "ppo": {
            "lr": 1e-3,
            "epochs": 4,
            "whiten_advantages": False,
            "target_kl": 0.02,
            "credit": "token",
        },
        "generation": {"temperature": 0.7},
        "max_turns": 50,
    }


def test_none_a_list_and_an_equals_sign_in_a_value_are_read() -> None:
    assert settings(
        ["ppo.reward_scale=none", 'lora.target_modules=["q_proj", "v_proj"]', "sft_data=a=b.jsonl"]
    ) == {
        "ppo": {"reward_scale": None},
        "lora": {"target_modules": ["q_proj", "v_proj"]},
        "sft_data": "a=b.jsonl",
    }


def test_of_two_assignments_of_a_name_the_later_counts() -> None:
    assert settings(["ppo.lr=1", "ppo.lr=2"]) == {"ppo": {"lr": 2.0}}


@pytest.mark.parametrize(
    ("assignment", "sentence"),
    [
        ("ppo.lr", "A setting is given as NAME=VALUE"),
        ("ppo.lr=fast", "ppo.lr takes float, not 'fast'"),
        ("ppo.lr=0", "ppo.lr takes float > 0.0, not '0'"),
        ("ppo.epochs=2.5", "ppo.epochs takes int, not '2.5'"),
        ("ppo.target_kl=soon", "ppo.target_kl takes float | none, not 'soon'"),
        ("ppo.credit=word", "ppo.credit takes turn or token, not 'word'"),
        ("on_collapse=stop", "on_collapse takes warn or rollback, not 'stop'"),
        ("lora.target_modules=[1", "lora.target_modules takes"),
        ("clip_range=1", "There is no setting 'clip_range'; near it: ppo.clip_range"),
        ("ppo.entropy_coeff=0", "near it: ppo.entropy_coef, "),
        ("ppo=1", "no setting 'ppo'"),
        ("zzzz=1", "no setting 'zzzz'; the config.json of every run has them all."),
        ("run_dir=x", "by --run-dir"),
    ],
)
def test_a_mistake_gets_a_sentence_that_names_it(assignment: str, sentence: str) -> None:
    with pytest.raises(UsageError) as error:
        settings([assignment])
    assert sentence in str(error.value)
    assert "--set" not in str(error.value), "it may have been typed in a dialog"


def test_what_is_above_counts_section_by_section() -> None:
    below = {"seed": 1, "ppo": {"lr": 1e-3, "epochs": 2}}
    assert merged(below, {"ppo": {"lr": 1e-4}, "lora": {"r": 4}}) == {
        "seed": 1,
        "ppo": {"lr": 1e-4, "epochs": 2},
        "lora": {"r": 4},
    }


def test_every_setting_of_the_configuration_can_be_given() -> None:
    config = from_dict(
        RunConfig,
        {"agent": "blackjack", "run_dir": "x", **settings(["ppo.kl_form=loss", "seed=3"])},
    )
    assert (config.ppo.kl_form, config.seed) == ("loss", 3)


def test_an_evaluation_takes_what_changes_something_in_it() -> None:
    given = ["max_turns=3", "max_failures=2", "parallel_envs=on"]
    assert evaluation_settings([*given, "generation.max_new_tokens=4"]) == {
        "max_turns": 3,
        "max_failures": 2,
        "parallel_envs": "on",
        "generation": {"max_new_tokens": 4},
    }
    with pytest.raises(UsageError, match=r"ppo\.lr changes nothing in an evaluation"):
        evaluation_settings(["ppo.lr=1e-3"])
