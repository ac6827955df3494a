"""Five hints at the first run, and never again."""

from __future__ import annotations

from typing import Any

from textual.app import App
from textual.widgets import Static

from llamagym_tui.app.app import LlamaGymApp
from llamagym_tui.protocol.commands import SetPace
from llamagym_tui.screens.help.tour import HINTS, TourScreen, marker
from llamagym_tui.screens.past_runs.home import HomeScreen
from llamagym_tui.screens.playground.playground import PlaygroundScreen
from llamagym_tui.user_files import data_dir
from tests import fakes
from tests.screens.pictures import SMALL, WIDE, at_sizes
from tests.screens.steps import sees, shown, until

SIZE = (80, 24)


def app(**options: Any) -> LlamaGymApp:
    return LlamaGymApp(
        fakes.config(data_dir() / "run"), client_factory=fakes.FakeClient, tour=True, **options
    )


async def test_five_hints_over_the_first_run_and_they_never_come_back():
    first = app()
    async with first.run_test(size=SIZE) as pilot:
        await sees(pilot, "1 of 5")
        assert not marker().exists()
        for _ in HINTS:
            assert isinstance(first.screen, TourScreen)
            await pilot.press("enter")
        await until(pilot, lambda: isinstance(first.screen, PlaygroundScreen))
    again = app()
    async with again.run_test(size=SIZE) as pilot:
        await sees(pilot, "All keys")
        assert isinstance(again.screen, PlaygroundScreen)


async def test_home_has_no_hints_and_the_first_run_that_it_begins_has():
    begun = LlamaGymApp(client_factory=fakes.FakeClient, tour=True)
    async with begun.run_test(size=SIZE) as pilot:
        await sees(pilot, "Blackjack")
        assert isinstance(begun.screen, HomeScreen)
        begun.open_run(fakes.config(data_dir() / "run"))
        await sees(pilot, "1 of 5")
        assert isinstance(begun.screen_stack[-2], PlaygroundScreen)


@at_sizes(SMALL, (200, 60), and_slowly=(WIDE,))
async def test_each_hint_stands_beside_what_it_speaks_of_and_not_on_it(size: tuple[int, int]):
    async with app().run_test(size=size) as pilot:
        await sees(pilot, "collecting turns")
        for number, hint in enumerate(HINTS, start=1):
            await sees(pilot, f"{number} of 5")
            await until(pilot, lambda hint=hint: is_beside(pilot.app, hint.about), hint.title)
            await pilot.press("enter")


def is_beside(app: App[None], selector: str) -> bool:
    """Whether the box is in view, next to what it speaks of, on the side that its arrow points to, and not on it."""
    about = app.screen_stack[-2].query_one(selector).region
    box = app.screen.query_one("#tour", Static)
    place = box.region
    cells = {
        "◀": (place.x - 1, place.y),
        "▶": (place.right, place.y),
        "▲": (place.x, place.y - 1),
        "▼": (place.x, place.bottom),
    }
    beside = cells.get(str(box.border_title)[0])
    is_on_it = place.overlaps(about)
    return place in app.screen.region and not is_on_it and beside and about.contains(*beside)


async def test_the_hints_are_skipped_by_escape_for_good():
    skipped = app()
    async with skipped.run_test(size=SIZE) as pilot:
        await sees(pilot, "1 of 5")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(skipped.screen, PlaygroundScreen))
    assert marker().exists()


async def test_one_may_go_back_and_click_on():
    async with app().run_test(size=SIZE) as pilot:
        await sees(pilot, "1 of 5")
        await pilot.press("right", "right", "left")
        await sees(pilot, "2 of 5")
        await pilot.click("#tour")
        await sees(pilot, "3 of 5")


async def test_every_hint_fits_into_the_smallest_terminal():
    async with app().run_test(size=(60, 16)) as pilot:
        for number, hint in enumerate(HINTS, start=1):
            await sees(pilot, f"{number} of 5")
            await sees(pilot, hint.text.split()[-1])
            await pilot.press("enter")


async def test_hints_that_were_left_follow_nothing_any_more():
    begun = app()
    async with begun.run_test(size=SIZE) as pilot:
        await sees(pilot, "1 of 5")
        tour = begun.screen
        assert isinstance(tour, TourScreen)
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(begun.screen, PlaygroundScreen))
        tour._follow()


async def test_where_nothing_can_be_written_the_hints_do_no_harm():
    data_dir().write_text("in the way")
    blocked = app()
    async with blocked.run_test(size=SIZE) as pilot:
        await sees(pilot, "1 of 5")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(blocked.screen, PlaygroundScreen))


async def test_the_hints_name_the_keys_of_the_map_the_pace_one_update_and_the_wheel():
    async with app().run_test(size=(100, 30)) as pilot:
        for hint in (
            "g shows what",
            "+ is faster, up to full speed, - slower.",
            "w takes the wheel",
        ):
            await sees(pilot, "of 5")
            await pilot.press("enter")
            await sees(pilot, hint)
            assert "u makes one update" in shown(pilot) or not hint.startswith("+")


async def test_the_first_run_ever_begins_at_a_pace_to_watch_and_the_next_one_at_full_speed():
    sent = []
    for _ in range(2):
        client = fakes.FakeClient()
        first = LlamaGymApp(
            fakes.config(data_dir() / "run"), client_factory=lambda client=client: client, tour=True
        )
        async with first.run_test(size=SIZE) as pilot:
            await until(pilot, lambda app=first: app.run_state.run is not None)
            await pilot.press("escape")
            await pilot.pause()
            sent.append(list(client.sent))
    assert sent == [[SetPace(turn_s=1.5)], []]
