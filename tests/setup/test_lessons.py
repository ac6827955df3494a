"""Lessons: every file is valid and names what there is; checks on figures worked by hand; slow: every lesson holds."""

from __future__ import annotations

import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from llamagym_tui import run_store, user_files
from llamagym_tui.errors import ConfigError
from llamagym_tui.screens.help.all_bindings import bindings_of
from llamagym_tui.screens.playground.named_keys import with_keys
from llamagym_tui.screens.playground.playground import PlaygroundScreen
from llamagym_tui.setup import catalog, lessons
from llamagym_tui.setup.lessons import NAMED, Check, begun, read_lesson

NAMES = list(lessons.lessons())
TOML = """
title = "T"
shows = "S."
agent = "blackjack"
minutes = 1
episodes = 10
settings = ["ppo.lr=1e-3"]
steps = ["{metrics} shows figures."]
look = "L."
guess = "G?"
guesses = ["a", "b", "c"]
measured = 2
question = "Q?"
answer = "A."
[[checks]]
figure = "entropy"
holds = "below"
bound = 1
"""


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "data"
    monkeypatch.setenv("LLAMAGYM_TUI_DATA", str(folder))
    return folder


def updates(**figures: list[float]) -> Any:
    rows = zip(*figures.values(), strict=True)
    return [SimpleNamespace(**dict(zip(figures, row, strict=True))) for row in rows]


def test_a_lesson_is_a_text_with_numbered_steps(tmp_path: Path) -> None:
    path = tmp_path / "01-t.toml"
    path.write_text(TOML.replace('figures."]', 'figures.", "Stop."]'))
    assert read_lesson(path).text() == (
        "S.\n\n1. {metrics} shows figures.\n2. Stop.\n\nLook at: L.\n\nQuestion: Q?"
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_lesson_begins_runs_of_its_settings_named_for_it(name: str) -> None:
    lesson = lessons.lessons()[name]
    config, control = begun(name), begun(name, control=True, episodes=lesson.episodes)
    assert (config.episodes, control.episodes) == (None, lesson.episodes)
    assert catalog.agent_name(config.agent) == lesson.agent
    assert replace(control, run_dir=config.run_dir, episodes=None) != config, "something is changed"
    abouts = [(Path(each.run_dir) / run_store.ABOUT_FILE).read_text() for each in (config, control)]
    assert abouts == [f"{name}: {lesson.title}", f"{name}, control: {lesson.title}"]


@pytest.mark.parametrize("name", NAMES)
def test_the_keys_that_a_lesson_names_are_those_of_the_playground(name: str) -> None:
    lesson = lessons.lessons()[name]
    named = NAMED.findall(lesson.text())
    assert named
    assert set(named) <= {binding.id for binding in bindings_of(PlaygroundScreen)}
    assert "{" not in with_keys(lesson.text())


@pytest.mark.parametrize("name", NAMES)
def test_a_lesson_is_short_and_states_what_was_measured(name: str) -> None:
    lesson = lessons.lessons()[name]
    assert lesson.minutes <= 5
    assert lesson.checks
    assert len(lesson.title) <= 40
    rows = [textwrap.wrap(line, 66) or [""] for line in with_keys(lesson.text()).splitlines()]
    assert sum(map(len, rows)) <= 16, "in 80 columns and 24 rows nothing of it is hidden"
    path = next(lessons.FOLDER.glob(f"*-{name}.toml"))
    assert f"llamagym-tui lessons {name} --check" in user_files.file_text(path)


def test_a_check_is_the_median_of_the_last_updates_less_that_of_the_control_run() -> None:
    run = updates(mean_return=[9.0, 1.0, 2.0])  # (1 + 2) / 2 = 1.5
    control = updates(mean_return=[9.0, 0.5, 0.0])  # 0.25
    alone = Check(figure="mean_return", last=2, holds="above", bound=1.4)
    less = Check(figure="mean_return", last=2, less_control=True, holds="below", bound=1.25)
    assert alone.measured(run, control) == 1.5
    assert less.measured(run, control) == 1.25
    assert alone.is_true(1.5)
    assert not less.is_true(1.25), "as large as the bound is not below it"
    assert not alone.is_true(1.4)
    jumped = updates(mean_return=[1.0, 0.5, 9.0])
    assert Check(figure="mean_return", last=3, holds="above", bound=0).measured(jumped, []) == 1.0


@pytest.mark.parametrize("holds", ["above", "below"])
def test_no_statement_holds_of_a_run_that_recorded_nothing(holds: Any) -> None:
    check = Check(figure="mean_return", holds=holds, bound=0)
    assert not check.is_true(check.measured([], []))


def test_a_check_reads_as_a_sentence() -> None:
    check = Check(figure="kl_ref", last=3, less_control=True, holds="above", bound=0.1)
    assert (
        check.statement
        == "kl ref (median of the last 3 updates, less the control run's) is above 0.1"
    )


@pytest.mark.parametrize(
    ("right", "wrong", "fault"),
    [
        ('"entropy"', '"enthalpy"', "'enthalpy' is no figure of an update"),
        ('"below"', '"beneath"', "Invalid enum value 'beneath'"),
        ("ppo.lr", "ppo.l", "There is no setting 'ppo.l'"),
        ("minutes = 1", 'minutes = "1"', "Expected `float`, got `str`"),
        ("look =", "looks =", "unknown field `looks`"),
        ('title = "T"', "title = ", "Invalid value"),
        ("measured = 2", "measured = 4", "there is no guess 4"),
    ],
)
def test_a_faulty_file_is_refused_in_a_sentence(
    tmp_path: Path, right: str, wrong: str, fault: str
) -> None:
    path = tmp_path / "01-a.toml"
    path.write_text(TOML)
    assert with_keys(read_lesson(path).text(), lambda id, usual: f"<{id}>").startswith(
        "S.\n\n1. <metrics> shows figures."
    )
    path.write_text(TOML.replace(right, wrong, 1))
    with pytest.raises(ConfigError, match=fault):
        read_lesson(path)
