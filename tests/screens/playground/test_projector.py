"""The theme for projectors: large figures, few words, kept for later sessions."""

from __future__ import annotations

import pytest
from textual.widget import Widget

from llamagym_tui import user_files
from llamagym_tui.screens.playground.figures import LargeFigures, solid
from tests import fakes
from tests.screens.conftest import MakeApp
from tests.screens.map_events import blackjack
from tests.screens.pictures import SMALL, WIDE, at_sizes
from tests.screens.steps import rolling_out, sees, stands_still, until

UPDATED = next(event for event in fakes.demo_run() if type(event).__name__ == "UpdateFinished")


def seen(screen: Widget, kind: str) -> bool:
    return any(widget.region.height for widget in screen.query(kind))


@at_sizes(SMALL, and_slowly=(WIDE, (160, 45)))
async def test_with_it_three_figures_are_large_and_a_shows_all_small(
    make_app: MakeApp, size: tuple[int, int]
):
    user_files.keep_preferences(user_files.config_dir(), all_figures=False)
    returns = fakes.counted([1.0, -1.0, -1.0, -1.0], 4)
    app = make_app(fakes.FakeClient([*blackjack(9.5, 0), UPDATED, returns]))
    async with rolling_out(app, size) as pilot:
        assert not seen(app.screen, "LargeFigures")
        app.theme = "projector"
        await until(pilot, lambda: seen(app.screen, "LargeFigures"))
        await sees(pilot, "% parse fail")
        assert not seen(app.screen, "WatchLine")
        await stands_still(pilot)
        figure = app.screen.query_one(LargeFigures)
        assert (figure.size.height, figure.region.bottom) == (5, size[1] - 1)
        assert not seen(app.screen, "FiguresColumn")
        rows = app.screen.query(LargeFigures).first().content_at(40).plain.splitlines()
        assert [row.rstrip() for row in rows] == [
            "    ███   ███ ███",
            "    █ █   █   █ █   mean return",
            "███ █ █   ███ █ █   1 update",
            "    █ █     █ █ █   0% parse fail",
            "    ███ █ ███ ███",
        ]
        wide = app.screen.query(LargeFigures).first().content_at(60).plain.splitlines()
        assert wide[0].startswith(f"{' ' * 8}██████")
        await pilot.press("a")
        await until(pilot, lambda: not seen(app.screen, "LargeFigures"))
        await sees(pilot, "entropy")
    assert user_files.load_preferences(user_files.config_dir()).theme == "projector"


@at_sizes(SMALL, WIDE)
async def test_with_it_the_map_alone_has_the_figure_below_it_where_there_is_room(
    make_app: MakeApp, size: tuple[int, int]
):
    app = make_app(fakes.FakeClient([*blackjack(9.5, 2), *fakes.learning(2)]))
    async with rolling_out(app, size) as pilot:
        app.theme = "projector"
        await pilot.press("z", "z", "z")
        await stands_still(pilot)
        grid, figure = app.screen.query_one("#live-map"), app.screen.query_one(LargeFigures)
        assert grid.size.width == size[0] - 2
        assert not seen(app.screen, "FiguresColumn")
        bottom = size[1] - 1
        assert (figure.region.bottom <= bottom) == (size[1] == 34)
        assert figure.region.y >= grid.region.bottom


@pytest.mark.parametrize(("mean", "text"), [(0.5, "+0.50"), (-3135.44, "\N{MINUS SIGN}3,135")])
async def test_a_large_mean_has_no_decimals(make_app: MakeApp, mean: float, text: str):
    app = make_app(fakes.FakeClient([*fakes.opening_events(), fakes.counted([mean] * 2, 2)]))
    async with rolling_out(app, (80, 24)) as pilot:
        await until(pilot, lambda: app.run_state.recent)
        shown = app.screen.query(LargeFigures).last().content_at(78).plain
        lines = solid(text, 60)
        assert [line[: len(lines[0])] for line in shown.splitlines()] == lines
