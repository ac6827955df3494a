"""Lessons: found from home, read, played; in the playground their text and their answer."""

from __future__ import annotations

import pytest

from llamagym_tui.app.app import LlamaGymApp
from llamagym_tui.setup.lessons import lessons
from llamagym_tui.state.reduce import reduce
from tests import fakes
from tests.screens.steps import sees, shown, until

NAME = "learning-rate"
LESSON = lessons()[NAME]


async def test_home_lists_the_lessons_and_plays_one():
    client = fakes.FakeClient()
    app = LlamaGymApp(client_factory=lambda: client)
    async with app.run_test(size=(80, 24)) as pilot:
        await sees(pilot, "L Lessons")
        await pilot.press("L")
        await sees(pilot, f"1. {LESSON.title}")
        await pilot.press("enter")
        await sees(pilot, "Guess first: Of the replies")
        assert app.config is None, "it is only read yet"
        await pilot.press("2")
        await until(pilot, lambda: app.config is not None)
        assert app.config is not None
        assert (app.config.ppo.lr, app.config.episodes) == (5e-3, None)
        await sees(pilot, "TRAIN")
        await sees(pilot, "Lesson, step 1 of 3: u goes on to the next update")
        app.run_state = reduce(app.run_state, fakes.run_started())
        await pilot.press("u")
        await sees(pilot, "Lesson, step 2 of 3: Read the replies")
        await pilot.press("m")
        await pilot.press("escape")
        await sees(pilot, "Lesson, step 3 of 3")
        await pilot.press("s")
        await pilot.press("escape")
        await sees(pilot, "Lesson, all steps are done")
        await pilot.press("L")
        await sees(pilot, "show the answer")
        assert "1. ✓ u goes on" in shown(pilot)
        assert LESSON.answer[:20] not in shown(pilot)
        await pilot.press("y")
        await sees(pilot, LESSON.answer[:20])
        assert "You guessed: about half. Measured: hardly any." in shown(pilot)
        await pilot.press("n")
        await until(pilot, lambda: len(app.screen_stack) == 2)


async def test_a_lesson_that_is_left_begins_nothing():
    app = LlamaGymApp(client_factory=fakes.FakeClient)
    async with app.run_test(size=(80, 24)) as pilot:
        await sees(pilot, "L Lessons")
        await pilot.press("L")
        await sees(pilot, f"1. {LESSON.title}")
        await pilot.press("enter")
        await sees(pilot, "Guess first")
        assert LESSON.shows[:30] not in shown(pilot), "it would give the guess away"
        await pilot.press("n")
        await until(pilot, lambda: len(app.screen_stack) == 1)
        assert app.config is None


@pytest.mark.parametrize("name", [None, NAME])
async def test_from_the_command_line_a_lesson_opens_over_its_playground(name: str | None, tmp_path):
    app = LlamaGymApp(
        fakes.config(tmp_path / "run"),
        client_factory=lambda: fakes.FakeClient(),
    )
    app.lesson = name
    async with app.run_test(size=(80, 24)) as pilot:
        await sees(pilot, "Guess first" if name else "TRAIN")
        await pilot.press("n" if name else "L")
        await sees(pilot, "TRAIN")
        assert len(app.screen_stack) == 1, "without a lesson its key does nothing"
