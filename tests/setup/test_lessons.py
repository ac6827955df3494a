"""Lessons: every file is valid, names keys that exist, and begins a run of its settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from llamagym_tui.cli.main import app
from llamagym_tui.errors import ConfigError
from llamagym_tui.runs import run_store
from llamagym_tui.screens.playground.playground import with_keys
from llamagym_tui.setup import catalog, lessons
from llamagym_tui.setup.lessons import begun, read_lesson

NAMES = list(lessons.lessons())
TOML = """
title = "T"
shows = "S."
agent = "blackjack"
minutes = 1
settings = ["ppo.lr=1e-3"]
steps = ["{metrics} shows figures.", "Stop."]
look = "L."
question = "Q?"
answer = "A."
"""


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMAGYM_TUI_DATA", str(tmp_path / "data"))


def test_a_lesson_is_a_text_with_numbered_steps(tmp_path: Path) -> None:
    path = tmp_path / "01-t.toml"
    path.write_text(TOML)
    text = "S.\n\n1. {metrics} shows figures.\n2. Stop.\n\nLook at: L.\n\nQuestion: Q?"
    assert read_lesson(path).text == text
    assert with_keys(text).startswith("S.\n\n1. m shows figures.")


@pytest.mark.parametrize("name", NAMES)
def test_a_lesson_begins_a_run_of_its_settings_and_names_keys_that_exist(name: str) -> None:
    lesson = lessons.lessons()[name]
    config = begun(name)
    assert catalog.agent_name(config.agent) == lesson.agent
    about = Path(config.run_dir) / run_store.ABOUT_FILE
    assert about.read_text() == f"{name}: {lesson.title}"
    text = with_keys(lesson.text)
    assert "{" not in text
    assert "_" not in text.replace(lesson.agent, ""), (
        "a setting is named as the screen of settings names it"
    )


@pytest.mark.parametrize(
    ("right", "wrong", "fault"),
    [
        ("ppo.lr", "ppo.l", "There is no setting 'ppo.l'"),
        ("look =", "looks =", "unknown field `looks`"),
    ],
)
def test_a_faulty_file_is_refused_in_a_sentence(
    tmp_path: Path, right: str, wrong: str, fault: str
) -> None:
    path = tmp_path / "01-a.toml"
    path.write_text(TOML.replace(right, wrong, 1))
    with pytest.raises(ConfigError, match=fault):
        read_lesson(path)


def test_the_command_lists_lessons_and_prints_one_by_its_name() -> None:
    listed = CliRunner().invoke(app, ["lessons"])
    assert "learning-rate " in listed.stdout
    one = CliRunner().invoke(app, ["lessons", "learning-rate"])
    assert "1. u plays until the next update" in one.stdout
    assert "Clipping takes the gradient" not in one.stdout, "the answer comes later"
