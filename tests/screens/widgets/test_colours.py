"""Colours: every text of every theme can be read on its ground, and 16 colours are the terminal's own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from textual.color import Color
from textual.theme import BUILTIN_THEMES, Theme

from llamagym_tui import user_files
from llamagym_tui.app.app import LlamaGymApp
from llamagym_tui.screens.past_runs.home import AgentList
from llamagym_tui.screens.widgets.chart import BASELINES
from llamagym_tui.screens.widgets.look import (
    COLOURED,
    GROUNDS,
    LEAST_CONTRAST,
    THEME,
    TINTED,
    contrast,
    readable,
)
from tests import fakes
from tests.screens.conftest import MakeApp
from tests.screens.steps import rolling_out, sees, strips

SCREENS = Path(__file__).parents[3] / "screens"
OFFERED = [theme for theme in (THEME, *BUILTIN_THEMES.values()) if not theme.ansi]
TEXTS = ("foreground", "aside", *COLOURED, *(f"text-{name}" for name in COLOURED))
OTHERS = {
    "secondary",
    "footer-background",
    *(f"foreground {share}%" for share in (25, 30)),
    *(f"background {share}%" for share in (0, 40, 60)),
}
"""Rules, borders, bars and translucent grounds."""


def test_no_screen_has_a_text_or_a_ground_of_another_variable() -> None:
    known = {*TEXTS, *GROUNDS, *TINTED, *OTHERS}
    for path in sorted([*SCREENS.rglob("*.py"), *SCREENS.rglob("*.tcss")]):
        used = set(re.findall(r"\$([a-z][a-z-]+(?: \d+%)?)", path.read_text("utf-8")))
        assert used <= known, path.name


@pytest.mark.parametrize("theme", OFFERED, ids=lambda theme: theme.name)
def test_every_text_of_every_theme_can_be_read_on_every_ground(theme: Theme) -> None:
    found = readable({**theme.to_color_system().generate(), **theme.variables})
    for ground in (*GROUNDS, *TINTED):
        for text in TEXTS:
            ratio = contrast(Color.parse(found[text]), Color.parse(found[ground]))
            assert ratio >= LEAST_CONTRAST, (text, ground)


def test_the_contrast_of_black_and_white_is_21_to_1() -> None:
    black, white, grey = (Color.parse(name) for name in ("#000000", "#ffffff", "#777777"))
    assert contrast(black, white) == pytest.approx(21)
    assert contrast(grey, white) == pytest.approx(4.48, abs=0.01)


def test_a_theme_that_can_be_read_keeps_its_colours() -> None:
    theme = THEME
    found = readable({**theme.to_color_system().generate(), **theme.variables})
    for name in COLOURED:
        one, other = Color.parse(found[name]), Color.parse(str(getattr(theme, name)))
        assert max(abs(a - b) for a, b in zip(one.rgb, other.rgb, strict=True)) <= 1, name


async def test_sixteen_colours_are_the_terminals_own_and_change_no_preference(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    user_files.keep_theme("nord")
    monkeypatch.setenv("COLORTERM", "")
    monkeypatch.setenv("TERM", "xterm")
    app = make_app()
    async with rolling_out(app, (80, 24)):
        assert app.theme == "ansi-dark"
    assert user_files.kept_theme() == "nord"
    home = LlamaGymApp(client_factory=fakes.FakeClient)
    async with home.run_test(size=(80, 24)) as pilot:
        await sees(pilot, "Blackjack")
        agents = home.screen.query_one(AgentList)
        assert agents.get_visual_style("option-list--option-highlighted").underline
        seen = [style for strip in strips(home) for _, style, _ in strip if style]
        colors = [color for style in seen for color in (style.color, style.bgcolor)]
        assert {color.type.name for color in colors if color} <= {"DEFAULT", "STANDARD"}


def test_baselines_differ_in_dash_and_in_hue() -> None:
    lines = BASELINES.values()
    assert set(BASELINES) == {"best", "expert", "random"}
    assert len({line.dash for line in lines}) == len({line.color for line in lines}) == 3
