"""The theme for projectors: large figures, few words, kept for later sessions."""

from __future__ import annotations

import pytest
from textual.widget import Widget

from llamagym_tui import user_files
from llamagym_tui.screens.playground.figures import LargeFigures
from tests import fakes
from tests.screens.conftest import MakeApp
from tests.screens.pictures import at_sizes
from tests.screens.steps import rolling_out, sees, until

UPDATED = next(event for event in fakes.demo_run() if type(event).__name__ == "UpdateFinished")


def seen(screen: Widget, kind: str) -> bool:
    return any(widget.region.height for widget in screen.query(kind))


@at_sizes((80, 24), (120, 34), (160, 45))
async def test_with_it_three_figures_are_large_and_a_shows_all_small(
    make_app: MakeApp, size: tuple[int, int]
):
    user_files.keep_preferences(user_files.config_dir(), all_figures=False)
    returns = fakes.counted([1.0, -1.0, -1.0, -1.0], 4)
    app = make_app(fakes.FakeClient([*fakes.opening_events(), UPDATED, returns]))
    async with rolling_out(app, size) as pilot:
        assert not seen(app.screen, "LargeFigures")
        app.theme = "projector"
        await until(pilot, lambda: seen(app.screen, "LargeFigures"))
        await sees(pilot, "% parse fail")
        assert not seen(app.screen, "WatchLine")
        assert not seen(app.screen, "FiguresColumn")
        # The mean, -1/2, as -0.50.
        rows = [
            line.rstrip()
            for line in app.screen.query(LargeFigures).first().content_at(60).plain.splitlines()
        ]
        assert rows[0].split("  ")[0] == "mean return"
        assert [row[:13] for row in rows[1:]] == ["   ┏━┓ ┏━╸┏━┓", "╺━╸┃ ┃ ┗━┓┃ ┃", "   ┗━┛•╺━┛┗━┛"]
        await pilot.press("a")
        await until(pilot, lambda: not seen(app.screen, "LargeFigures"))
        await sees(pilot, "entropy")
    assert user_files.load_preferences(user_files.config_dir()).theme == "projector"


@pytest.mark.parametrize(("mean", "text"), [(0.5, "+0.50"), (-3135.44, "-3,135")])
async def test_a_large_mean_has_no_decimals(make_app: MakeApp, mean: float, text: str):
    from llamagym_tui.screens.playground.figures import _large

    app = make_app(fakes.FakeClient([*fakes.opening_events(), fakes.counted([mean] * 2, 2)]))
    async with rolling_out(app, (80, 24)) as pilot:
        await until(pilot, lambda: app.run_state.recent)
        shown = app.screen.query(LargeFigures).last().content_at(78).plain
        assert [line.strip() for line in shown.splitlines()[1:]] == [
            line.strip() for line in _large(text)
        ]
