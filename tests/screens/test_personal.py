"""The app as its user likes it: own keys, theme, palette, help on the focused widget."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.command import CommandPalette
from textual.widgets import OptionList

from llamagym_tui import user_files
from llamagym_tui.app.app import LlamaGymApp
from llamagym_tui.protocol.commands import Pause, Resume, SaveCheckpoint
from llamagym_tui.screens.widgets.key_bar import KeyBar
from tests import fakes
from tests.screens.conftest import MakeApp
from tests.screens.steps import (
    is_drawn,
    notices,
    reaches,
    rolling_out,
    sees,
    shown,
    strips,
    until,
)

SMALL, LARGE = (80, 24), (160, 45)


@pytest.fixture(autouse=True)
def config_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "config"
    folder.mkdir(exist_ok=True)
    monkeypatch.setenv("LLAMAGYM_TUI_CONFIG", str(folder))
    return folder


def write_keys(folder: Path, text: str) -> None:
    (folder / "keys.toml").write_text(text, encoding="utf-8")


async def test_a_moved_key_does_what_the_old_one_did_and_is_shown(
    make_app: MakeApp, config_dir: Path
):
    write_keys(config_dir, '[keys]\npause = "f5"\ncheckpoint = "f6"\n')
    client = fakes.FakeClient()
    async with make_app(client).run_test(size=LARGE) as pilot:
        await sees(pilot, "f5 Pause")
        await sees(pilot, "episode 0")
        await pilot.press("space", "c")
        assert client.sent == []
        await pilot.press("f5")
        await sees(pilot, "Paused. f5 resumes")
        await pilot.press("f5", "f6")
        await until(pilot, lambda: client.sent == [Pause(), Resume(), SaveCheckpoint()])


async def test_the_palette_lists_what_can_be_done_now_and_does_it(make_app: MakeApp):
    client = fakes.FakeClient()
    app = make_app(client)
    async with rolling_out(app, SMALL) as pilot:
        await pilot.press("ctrl+p")
        await reaches(pilot, CommandPalette)
        await sees(pilot, "Theme: other colours")
        await pilot.press(*"checkp")
        await until(pilot, lambda: found(app)[:1] == ["Checkpoint"])
        await pilot.press("enter")
        await until(pilot, lambda: client.sent == [SaveCheckpoint()])


def found(app: LlamaGymApp) -> list[str]:
    """The titles that the palette shows, the first one first."""
    return [named(str(option.prompt)) for option in app.screen.query_one(OptionList).options]


def named(row: str) -> str:
    """The command in a row of the palette, between its key and its meaning."""
    return row[7:].partition(":")[0]


async def test_the_palette_leaves_out_what_cannot_be_done(make_app: MakeApp):
    app = make_app(fakes.FakeClient(list(fakes.opening_events())[:2]))
    async with app.run_test(size=SMALL) as pilot:
        await sees(pilot, "▸ model")
        titles = {named(command.title) for command in app.get_system_commands(app.screen)}
        assert {"Metrics", "Prompt", "Theme", "Quit"} <= titles
        assert not titles & {"Pause", "Checkpoint", "Roll back", "Settings", "Restart"}


async def test_the_screen_is_saved_from_the_palette(make_app: MakeApp):
    app = make_app()
    async with rolling_out(app, SMALL) as pilot:
        await pilot.press("ctrl+p", *"save the")
        await until(pilot, lambda: found(app)[:1] == ["Save the screen"])
        await pilot.press("enter")
        await until(pilot, lambda: notices(app), "a notice")
    assert app.config is not None
    [path] = Path(app.config.run_dir).glob("screen-*.svg")
    assert notices(app) == [f"The screen is saved: {path}"]
    picture = path.read_text(encoding="utf-8")
    assert "LEARNING" in picture
    assert "Search" not in picture, "the palette is gone"
    assert "http" not in picture.replace("http://www.w3.org", "")


async def test_a_screen_that_cannot_be_saved_is_a_sentence(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*_: object) -> None:
        raise OSError("no room")

    app = make_app()
    async with rolling_out(app, SMALL) as pilot:
        monkeypatch.setattr("llamagym_tui.user_files.os.replace", refuse)
        await pilot.press("Y")
        await until(pilot, lambda: notices(app), "a notice")
    assert app.config is not None
    assert notices(app) == [f"The screen is not saved in {app.config.run_dir} (no room)."]


async def test_help_shows_what_the_focused_widget_is_for_and_the_keys_as_they_are_bound(
    make_app: MakeApp, config_dir: Path
):
    write_keys(config_dir, '[keys]\npause = "f5"\n')
    async with rolling_out(make_app(), LARGE) as pilot:
        await pilot.press("question_mark", "end")
        await sees(pilot, "Pause after the current turn, or resume.")
        await pilot.press("question_mark")
        await until(pilot, lambda: "Pause after" not in shown(pilot))
        await pilot.press("m", "f1")
        await sees(pilot, "say whether they are healthy")
        await pilot.press("escape", "escape", "s", "f1")
        await sees(pilot, "The settings that may change now.")


async def test_the_theme_that_was_chosen_is_there_the_next_time(
    make_app: MakeApp, config_dir: Path
):
    app = make_app()
    async with rolling_out(app, SMALL) as pilot:
        app.theme = "nord"
        await until(pilot, lambda: user_files.kept_theme() == "nord")
    assert make_app(fakes.FakeClient([])).theme == "nord"


def test_a_theme_that_is_gone_is_the_apps_own(make_app: MakeApp, config_dir: Path):
    user_files.keep_theme("no-such-theme")
    assert make_app(fakes.FakeClient([])).theme == "llamagym"


async def test_every_part_is_drawn_in_the_terminals_own_colours(
    make_app: MakeApp, config_dir: Path
):
    user_files.keep_theme("ansi-dark")
    app = make_app(fakes.FakeClient(fakes.demo_run()))
    async with app.run_test(size=LARGE) as pilot:
        await until(pilot, lambda: is_drawn(app.screen), "the chart")
        await pilot.press("m")
        await sees(pilot, "grad norm")
        assert colour_types(app) <= {"DEFAULT", "STANDARD"}


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1")])
async def test_no_color_and_a_dumb_terminal_leave_no_colour(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch, name: str, value: str
):
    monkeypatch.setenv(name, value)
    app = make_app(fakes.FakeClient(fakes.demo_run()))
    async with app.run_test(size=LARGE) as pilot:
        await until(pilot, lambda: is_drawn(app.screen), "the chart")
        await pilot.pause(0.3)
        assert colour_types(app) == {"DEFAULT"}
        await pilot.press("m")
        await sees(pilot, "grad norm")
        assert colour_types(app) == {"DEFAULT"}
        chosen = app.screen.query_one(OptionList).get_visual_style(
            "option-list--option-highlighted"
        )
        assert chosen.underline, "the cursor is seen without colour, too"


def colour_types(app: LlamaGymApp) -> set[str]:
    """Kinds of the colours that go to the terminal."""
    styles = [segment.style for strip in strips(app) for segment in strip]
    found = [colour for style in styles if style for colour in (style.color, style.bgcolor)]
    return {colour.type.name for colour in found if colour is not None}


async def test_where_room_is_short_help_and_quit_stay_in_the_key_bar(make_app: MakeApp):
    app = make_app()
    async with rolling_out(app, (60, 20)) as pilot:
        bar = app.screen.query_one(KeyBar).render().plain
        assert bar.endswith("…  ? All keys  q Leave")
        assert len(bar) <= 58
        await pilot.click(KeyBar, offset=(1 + bar.index("…"), 0))
        await reaches(pilot, CommandPalette)
        await pilot.press("escape")
        await pilot.resize_terminal(*LARGE)
        await sees(pilot, "^r Roll back")
        await pilot.click(KeyBar, offset=(3, 0))
        await sees(pilot, "Paused.")
