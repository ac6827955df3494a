"""No text from a model, an environment or a file steers the terminal or is read as markup."""

from __future__ import annotations

import pytest
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.content import Content
from textual.events import Paste
from textual.widgets import Input, Static, TextArea

from llamagym_tui.app.personal import LONGEST_NOTICE
from llamagym_tui.screens.playground.prompt_editor import PromptEditor
from llamagym_tui.screens.widgets.fields import LiteralLines
from tests import fakes
from tests.protocol.test_literal import harmful
from tests.screens.conftest import MakeApp
from tests.screens.steps import notices, reaches, rolling_out, sees, shown, until

UNPATCHED = LiteralLines.apply
"""Without the assertion that it has nothing to do."""


def test_what_was_forgotten_is_left_out_at_the_last_look_and_nothing_moves():
    link = Style(link="https://x.y", bold=True)
    segments = [
        Segment("a\x1b]52;c;aGk=\x07b\u200b\x9b"),
        Segment("\ud800\ttab\n", link),
        Segment("日本", link),
    ]
    found = UNPATCHED(LiteralLines(), segments, Color(0, 0, 0))
    assert [(text, style) for text, style, _ in found] == [
        ("a]52;c;aGk=b", None),
        ("�tab", Style(bold=True)),
        ("日本", Style(bold=True)),
    ]
    assert [each.cell_length for each in found] == [each.cell_length for each in segments]


async def test_every_widget_is_looked_at_and_its_border_too(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(LiteralLines, "apply", UNPATCHED)
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        forgotten = Static(Content("seen\x1b[2J"))
        forgotten.styles.border, forgotten.styles.dock = ("solid", "red"), "top"
        forgotten.border_title = Content("title\x1b]0;x\x07")
        await app.screen.mount(forgotten)
        await sees(pilot, "seen[2J")
        await sees(pilot, "title]0;x")
        assert harmful(shown(pilot)) == []


async def test_a_notification_is_a_line_without_markup(make_app: MakeApp):
    app = make_app()
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await sees(pilot, "episode ")
        app.screen.notify("[red]a\x1b\nb[/red]" + "x" * 10_000, markup=True)
        await sees(pilot, "[red]a␛")
        assert len(notices(app)[0]) == LONGEST_NOTICE


async def test_what_is_pasted_into_the_prompt_is_literal(make_app: MakeApp):
    client = fakes.FakeClient()
    app = make_app(client)
    async with rolling_out(app, (80, 24)) as pilot:
        await pilot.press("p")
        await reaches(pilot, PromptEditor)
        area = app.screen.query_one(TextArea)
        area.post_message(Paste("\x1b[2Jx"))
        await until(pilot, lambda: area.text.endswith("x"))
        assert area.text.endswith("␛[2Jx")
        assert area.text.count("[2J") == 1


async def test_lines_pasted_into_an_input_are_words_without_controls(make_app: MakeApp):
    app = make_app()
    async with rolling_out(app, (80, 24)) as pilot:
        await pilot.press("s")
        await until(pilot, lambda: app.screen.query(Input))
        field = app.screen.query_one(Input)
        field.clear()
        field.post_message(Paste("1\x1b\r2\n3"))
        await until(pilot, lambda: field.value)
        assert field.value == "1␛ 2 3"
