"""Screens that fit: laid out once, for the terminal that is there."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.events import Resize
from textual.geometry import Size
from textual.widgets import Static

from llamagym_tui.screens.widgets.frame import HEIGHTS, WIDTHS, Fitted
from tests.screens.steps import BareApp, sees, until


class Sheet(Fitted[None]):
    """A screen that notes for what it is laid out, apart from what its widgets ask for."""

    def __init__(self) -> None:
        super().__init__()
        self.layouts: list[frozenset[str]] = []

    def compose(self) -> ComposeResult:
        yield Static("a sheet")

    def _refresh_layout(self, size: Size | None = None, scroll: bool = False) -> None:
        if size is not None:
            self.layouts.append(frozenset(self.classes))
        super()._refresh_layout(size, scroll)


class Sized(BareApp):
    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS


async def test_an_opened_screen_is_laid_out_once_with_the_classes_of_its_size():
    async with Sized().run_test(size=(120, 34)) as pilot:
        sheet = Sheet()
        await pilot.app.push_screen(sheet)
        await sees(pilot, "a sheet")
        assert sheet.layouts == [{"-wide", "-tall"}]


async def test_an_opened_screen_follows_the_terminal_below_another_one():
    async with Sized().run_test(size=(120, 34)) as pilot:
        below, above = Sheet(), Sheet()
        await pilot.app.push_screen(below)
        await pilot.app.push_screen(above)
        await pilot.resize_terminal(60, 15)
        await until(
            pilot, lambda: above.classes == {"-narrow", "-too-short"}, "classes of the upper one"
        )
        pilot.app.pop_screen()
        await until(
            pilot, lambda: below.classes == {"-narrow", "-too-short"}, "classes of the lower one"
        )


async def test_a_screen_follows_the_terminal_to_a_size_of_the_same_classes():
    async with Sized().run_test(size=(120, 34)) as pilot:
        sheet = Sheet()
        await pilot.app.push_screen(sheet)
        await sees(pilot, "a sheet")
        await pilot.resize_terminal(200, 50)
        await until(
            pilot,
            lambda: sheet.query_one(Static).outer_size.width == 200,
            "a layout of the new width",
        )
        assert sheet.outer_size == (200, 50)


async def test_of_two_sizes_that_are_told_at_once_the_terminals_own_stays():
    async with Sized().run_test(size=(80, 24)) as pilot:
        sheet = Sheet()
        await pilot.app.push_screen(sheet)
        await sees(pilot, "a sheet")
        for height in (25, 24, 25, 24):
            sheet.post_message(Resize(Size(80, height), Size(80, height)))
            sheet.call_later(list)
        for _ in range(5):
            await pilot.pause()
        assert len(sheet.layouts) == 1
        assert sheet.size == (80, 24)
