"""Colours of each depth: every text can be read on its ground, and what colours mean is kept where there are few."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import combinations, pairwise
from pathlib import Path

import pytest
from rich.color import Color as RichColor
from textual.color import Color
from textual.pilot import Pilot
from textual.screen import ModalScreen
from textual.strip import Strip
from textual.theme import BUILTIN_THEMES, Theme

from llamagym_tui import user_files
from llamagym_tui.app.app import LlamaGymApp
from llamagym_tui.protocol.events import ModeChanged, PhaseChanged
from llamagym_tui.screens.past_runs.agent_list import AgentList
from llamagym_tui.screens.playground.status_lines import Banner
from llamagym_tui.screens.policy_map.mapped_policy import LEVELS, colours
from llamagym_tui.screens.widgets.chart_cells import BASELINES
from llamagym_tui.screens.widgets.contrast import (
    COLOURED,
    FIELDS,
    GROUNDS,
    LEAST_CONTRAST,
    TINTED,
    contrast,
    readable,
)
from llamagym_tui.screens.widgets.few_colours import PALETTE, lab, nearest, nearest_on
from llamagym_tui.screens.widgets.look import THEMES
from tests import fakes
from tests.screens.conftest import MakeApp
from tests.screens.map_events import blackjack
from tests.screens.steps import rolling_out, sees, stands_still, strips, until

SCREENS = Path(__file__).parents[3] / "screens"
OFFERED = [theme for theme in (*THEMES, *BUILTIN_THEMES.values()) if not theme.ansi]
TEXTS = ("foreground", "aside", *COLOURED, *(f"text-{name}" for name in COLOURED))
NO_TEXT = {"foreground 25%", "foreground 30%", "secondary"}
"""Rules, borders and bars."""
DEPTHS = {"truecolor": "truecolor", "256": ""}
"""What COLORTERM is at each depth."""


def of_theme(theme: Theme) -> dict[str, Color]:
    found = readable({**theme.to_color_system().generate(), **theme.variables})
    return {name: Color.parse(found[name]) for name in (*GROUNDS, *TINTED, *TEXTS, "secondary")}


def styles() -> Iterator[tuple[Path, str]]:
    """The variables that the screens use for texts and grounds, with how much of them."""
    for path in sorted([*SCREENS.rglob("*.py"), *SCREENS.rglob("*.tcss")]):
        for found in re.finditer(r"\$([a-z][a-z-]+(?: \d+%)?)", path.read_text("utf-8")):
            yield path, found[1]


def test_no_screen_has_a_text_or_a_ground_of_another_variable() -> None:
    grounds = {
        *GROUNDS,
        *TINTED,
        "footer-background",
        "background 0%",
        "background 40%",
        "background 60%",
    }
    known = {*TEXTS, *grounds, *NO_TEXT}
    assert {(path.name, name) for path, name in styles() if name not in known} == set()


@pytest.mark.parametrize("theme", OFFERED, ids=lambda theme: theme.name)
def test_every_text_of_every_theme_can_be_read_on_every_ground_at_each_depth(theme: Theme) -> None:
    colors = of_theme(theme)
    for name in (*GROUNDS, *TINTED):
        ground = colors[name]
        for text in TEXTS:
            assert contrast(colors[text], ground) >= LEAST_CONTRAST, (text, name)
            few, on = nearest_on(colors[text], PALETTE[nearest(ground)]), PALETTE[nearest(ground)]
            assert contrast(PALETTE[few], on) >= LEAST_CONTRAST, (text, name, "in 256 colours")


@pytest.mark.parametrize("theme", OFFERED, ids=lambda theme: theme.name)
def test_a_chosen_row_and_a_bar_differ_from_the_background_in_256_colours(theme: Theme) -> None:
    colors = of_theme(theme)
    background = nearest(colors["background"])
    for name in ("selected", "ground-error", "ground-warning", "ground-note"):
        assert nearest(colors[name]) != background, name


@pytest.mark.parametrize("theme", OFFERED, ids=lambda theme: theme.name)
def test_fields_of_a_drawing_differ_from_each_other_at_each_depth(theme: Theme) -> None:
    found = readable({**theme.to_color_system().generate(), **theme.variables})
    colors = {name: Color.parse(found[f"field-{name}"]) for name in FIELDS}
    shades = {name: lab(color) for name, color in colors.items()}
    for one, other in combinations(FIELDS, 2):
        assert math.dist(shades[one], shades[other]) > 0.05, (one, other)
    few: dict[int, list[str]] = {}
    for name, color in colors.items():
        few.setdefault(nearest(color), []).append(name)
    assert [names for names in few.values() if len(names) > 1] == []


def test_a_theme_that_can_be_read_keeps_its_colours() -> None:
    theme = THEMES[0]
    found = readable({**theme.to_color_system().generate(), **theme.variables})
    for name in COLOURED:
        one, other = Color.parse(found[name]), Color.parse(str(getattr(theme, name)))
        assert max(abs(a - b) for a, b in zip(one.rgb, other.rgb, strict=True)) <= 1, name


@pytest.mark.parametrize("theme", OFFERED, ids=lambda theme: theme.name)
def test_no_colour_turns_into_one_of_another_name(theme: Theme) -> None:
    for name, color in of_theme(theme).items():
        one, other = lab(color), lab(PALETTE[nearest(color)])
        if min(one.chroma, other.chroma) > 0.02:
            turn = abs(math.atan2(one.b, one.a) - math.atan2(other.b, other.a))
            assert min(turn, math.tau - turn) <= math.radians(20), name


@pytest.mark.parametrize(
    "theme",
    [
        "llamagym",
        "solarized-dark",
        *(pytest.param(each, marks=pytest.mark.slow) for each in ("projector", "textual-light")),
    ],
)
@pytest.mark.parametrize("depth", DEPTHS)
async def test_the_map_goes_from_cold_over_neutral_to_warm(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch, theme: str, depth: str
) -> None:
    monkeypatch.setenv("COLORTERM", DEPTHS[depth])
    user_files.keep_preferences(Path("config"), theme=theme)
    app = make_app()
    async with app.run_test(size=(80, 24)):
        grounds = [colours(app, level / LEVELS).background for level in range(LEVELS + 1)]
        cold, neutral, warm = (
            lab(Color.parse(app.theme_variables[name]))
            for name in ("map-cold", "panel", "map-warm")
        )
    assert None not in grounds
    shown = [
        lab(ground if depth == "truecolor" else PALETTE[nearest(ground)]) for ground in grounds
    ]
    for end, of_end in ((cold, shown[: LEVELS // 2]), (warm, shown[: LEVELS // 2 : -1])):
        towards = (end.a - neutral.a) * (of_end[0].a - neutral.a)
        towards += (end.b - neutral.b) * (of_end[0].b - neutral.b)
        assert towards > 0, "the end has its hue"
        apart = [math.dist(each, shown[LEVELS // 2]) for each in of_end]
        assert all(after <= before + 1e-3 for before, after in pairwise(apart)), "step by step"


def unreadable(app: LlamaGymApp) -> list[tuple[str, str, str, float]]:
    """The words on the screen with too little contrast."""
    found = []
    for strip in _looked_at(app):
        for text, style, _ in strip:
            if style is None or not re.search(r"\w", text):
                continue
            color, ground = (_channels(each) for each in (style.color, style.bgcolor))
            if style.reverse:
                color, ground = ground, color
            if color is not None and ground is not None:
                ratio = contrast(color, ground)
                if ratio < LEAST_CONTRAST - 0.02:
                    found.append((text, color.hex, ground.hex, round(ratio, 2)))
    return found


def _looked_at(app: LlamaGymApp) -> Iterator[Strip]:
    """The lines of the screen; of a dialog, without what it lies over."""
    lines = strips(app)
    if not isinstance(app.screen, ModalScreen):
        yield from lines
        return
    for part in app.screen.query(".dialog, KeyBar, CommandInput, CommandList"):
        region = part.region
        for line in lines[region.y : region.bottom]:
            yield line.crop(region.x, region.right)


def _channels(color: RichColor | None) -> Color | None:
    if color is None or color.is_default:
        return None
    return Color(*color.get_truecolor())


@pytest.mark.parametrize(
    ("theme", "depth"),
    [
        ("llamagym", "truecolor"),
        ("solarized-light", "256"),
        *(
            pytest.param(*pair, marks=pytest.mark.slow)
            for pair in (
                ("nord", "256"),
                ("llamagym", "256"),
                ("solarized-light", "truecolor"),
                ("nord", "truecolor"),
                ("atom-one-light", "truecolor"),
                ("atom-one-light", "256"),
            )
        ),
    ],
)
async def test_every_word_on_the_screens_can_be_read(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch, theme: str, depth: str
) -> None:
    monkeypatch.setenv("COLORTERM", DEPTHS[depth])
    user_files.keep_preferences(Path("config"), theme=theme)
    client = fakes.FakeClient([*blackjack(), *fakes.demo_run(batches=4)])
    app = make_app(client)
    async with app.run_test(size=(120, 34)) as pilot:
        await sees(pilot, "episode 512")
        assert unreadable(app) == []
        client.emit(ModeChanged(mode="inference"), PhaseChanged(phase="paused"))
        await sees(pilot, "Paused.")
        await pilot.press("k")
        assert unreadable(app) == []
        for key in ("m", "g", "s", "e", "question_mark", "p", "ctrl+p"):
            await pilot.press(key)
            await until(pilot, lambda: len(app.screen_stack) == 2, key)
            assert unreadable(app) == [], key
            await pilot.press("escape")
            await until(pilot, lambda: len(app.screen_stack) == 1, "back")


@pytest.mark.parametrize("depth", [pytest.param("truecolor", marks=pytest.mark.slow), "256", "16"])
async def test_the_chosen_row_of_home_and_the_pause_are_seen_at_each_depth(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch, depth: str
) -> None:
    monkeypatch.setenv("COLORTERM", DEPTHS.get(depth, ""))
    if depth == "16":
        monkeypatch.setenv("TERM", "xterm")
    home = LlamaGymApp(client_factory=fakes.FakeClient)
    async with home.run_test(size=(80, 24)) as pilot:
        await sees(pilot, "Blackjack")
        agents = home.screen.query_one(AgentList)
        chosen = agents.get_visual_style("option-list--option-highlighted")
        row = next(strip for strip in strips(home) if "Blackjack" in strip.text)
        grounds = {str(style.bgcolor) for text, style, _ in row if style and text.strip()}
        assert len(grounds) > 1 or chosen.underline, "its row is another"
        if depth == "16":
            assert kinds(pilot) <= {"DEFAULT", "STANDARD"}
            assert not vanished(home)
    client = fakes.FakeClient([*blackjack(), PhaseChanged(phase="paused")])
    app = make_app(client)
    async with app.run_test(size=(80, 24)) as pilot:
        await sees(pilot, "Paused.")
        banner = app.screen.query_one(Banner)
        assert banner.has_class("-note")
        client.emit(*fakes.hand(3, [("17", "Hit.", "keyword")], 0.0))
        await sees(pilot, "stick")
        await pilot.press("k")
        assert not vanished(app), "neither the sentence nor the marked reply"
        await pilot.press("g")
        await sees(pilot, "agrees on")
        await stands_still(pilot)
        if depth == "16":
            assert kinds(pilot) <= {"DEFAULT", "STANDARD"}
            grounds = {
                style.bgcolor.number
                for strip in strips(app)
                for _, style, _ in strip
                if style and style.bgcolor
            }
            assert {3, 4} <= grounds, "the map has its two ends, yellow and blue"


def vanished(app: LlamaGymApp) -> list[str]:
    """Words in the colour of their ground."""
    return [
        text
        for strip in strips(app)
        for text, style, _ in strip
        if style and re.search(r"\w", text) and style.color and style.color == style.bgcolor
        if not style.color.is_default
    ]


def kinds(pilot: Pilot[None]) -> set[str]:
    """Kinds of the colours that go to the terminal."""
    seen = [style for strip in strips(pilot.app) for _, style, _ in strip if style]
    colors = [color for style in seen for color in (style.color, style.bgcolor)]
    return {color.type.name for color in colors if color is not None}


async def test_sixteen_colours_are_the_terminals_own_and_change_no_preference(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    user_files.keep_preferences(Path("config"), theme="nord")
    monkeypatch.setenv("COLORTERM", "")
    monkeypatch.setenv("TERM", "xterm")
    app = make_app()
    async with rolling_out(app, (80, 24)):
        assert app.theme == "ansi-dark"
    assert user_files.load_preferences(Path("config")).theme == "nord"


def test_baselines_differ_in_dash_and_in_hue() -> None:
    lines = BASELINES.values()
    assert set(BASELINES) == {"optimal", "expert", "random"}
    assert len({line.dash for line in lines}) == len({line.color for line in lines}) == 3
