"""Lessons: found from home, read and played; the playground shows their text and their answer."""

from __future__ import annotations

from llamagym_tui.app.app import LlamaGymApp
from llamagym_tui.setup.lessons import lessons
from tests import fakes
from tests.screens.steps import sees, shown, until

LESSON = lessons()["learning-rate"]


async def test_home_lists_the_lessons_and_plays_one():
    client = fakes.FakeClient()
    app = LlamaGymApp(client_factory=lambda: client)
    async with app.run_test(size=(80, 24)) as pilot:
        await sees(pilot, "L Lessons")
        await pilot.press("L")
        await sees(pilot, f"1. {LESSON.title}")
        await pilot.press("enter")
        await sees(pilot, "1. u plays until the next update")
        assert app.config is None, "it is only read yet"
        await pilot.press("y")
        await until(pilot, lambda: app.config is not None)
        assert app.config is not None
        assert (app.config.ppo.lr, app.config.episodes) == (5e-3, None)
        await sees(pilot, "LEARNING")
        await pilot.press("L")
        await sees(pilot, "show the answer")
        assert LESSON.answer[:20] not in shown(pilot)
        await pilot.press("y")
        await sees(pilot, LESSON.answer[:20])
        await pilot.press("n")
        await until(pilot, lambda: len(app.screen_stack) == 2)


async def test_a_lesson_that_is_left_begins_nothing():
    app = LlamaGymApp(client_factory=fakes.FakeClient)
    async with app.run_test(size=(80, 24)) as pilot:
        await sees(pilot, "L Lessons")
        await pilot.press("L", "enter")
        await sees(pilot, "leave it")
        await pilot.press("n")
        await until(pilot, lambda: len(app.screen_stack) == 1)
        assert app.config is None
