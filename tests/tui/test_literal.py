"""No text from a model, an environment or a file steers the terminal or is read as markup."""

from __future__ import annotations

import random

import pytest
from textual.app import App
from textual.events import Paste
from textual.widgets import Input, TextArea

from llamagym_tui.protocol.events import PhaseChanged, PromptChanged, SessionFailed, WarningRaised
from llamagym_tui.screens.prompt_editor import PromptEditor
from llamagym_tui.screens.widgets.conversation import ConversationView
from llamagym_tui.screens.widgets.literal import literal, literal_content, one_line
from llamagym_tui.transcript import Transcript
from tests import fakes
from tests.tui.conftest import MakeApp
from tests.tui.steps import sees, shown, until

NASTY = [
    "\x1b[2J\x1b[31mred",
    "\x1b]52;c;aGk=\x07",
    "\x9b31m",
    "\x7f\x00\x08",
    "a\u202eb\u2066c",
    "a\r\nb\rc",
    "[/",
    "[/x]",
    "[$a]",
    "[@click=app.quit]leave[/]",
    "Action: [hit]",
    "日本語 🃏🃏 e\u0301",
    "\ud800",
    "\u2028\u2029\x85",
]


def harmful(text: str) -> list[str]:
    return [
        char
        for char in text
        if (ord(char) < 0x20 and char not in "\n\t")
        or 0x7F <= ord(char) < 0xA0
        or char in "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029"
        or 0xD800 <= ord(char) < 0xE000
    ]


def test_newlines_and_tabs_stay_and_escape_is_shown():
    assert literal("a\tb\nc\x1b[2J") == "a\tb\nc␛[2J"


def test_delete_c1_and_bidirectional_overrides_are_shown():
    assert literal("\x7f\x9b\u202e\u2069") == "␡���"


def test_every_code_point_below_the_surrogates_end_is_harmless_afterwards():
    assert harmful(literal("".join(map(chr, range(0xE000))))) == []


def test_brackets_are_brackets():
    assert literal_content("[b]Action: [hit][/]").plain == "[b]Action: [hit][/]"


def test_one_line_has_no_line_ends():
    assert one_line("a\n b\x1b\tc") == "a b␛ c"


def test_random_texts_are_harmless():
    rng = random.Random(7)
    for _ in range(200):
        text = "".join(
            chr(rng.choice([rng.randrange(0x20), rng.randrange(0x300), rng.randrange(0x11000)])) for _ in range(99)
        )
        assert harmful(literal(text)) == []


class Bare(App[None]):
    def compose(self):
        yield ConversationView()


async def test_no_strip_of_a_conversation_has_an_escape():
    rng = random.Random(3)
    transcript = Transcript()
    for episode in range(60):
        text = " ".join(rng.sample(NASTY, 4))
        for event in fakes.hand(episode, [(text, text, "keyword")], 1.0, system_prompt=text):
            transcript = transcript.tell(event)
    app = Bare()
    async with app.run_test(size=(61, 20)) as pilot:
        view = app.query_one(ConversationView)
        view.show(transcript.note(NASTY[0]).entries)
        await pilot.pause()
        for number in view.line_numbers:
            line = view.line_at(number)
            assert harmful(line.plain if line else "") == []
        for y in range(view.size.height):
            strip = view.render_line(y)
            assert strip.cell_length == view.scrollable_content_region.width
            assert harmful("".join(segment.text for segment in strip)) == []


@pytest.mark.parametrize("text", [" ".join(NASTY[:6]), *NASTY[6:9], " ".join(NASTY[9:])])
async def test_no_screen_shows_an_escape(make_app: MakeApp, text: str):
    text = text.encode("utf-8", "replace").decode()  # as it comes over the wire
    client = fakes.FakeClient(fakes.opening_events())
    app = make_app(client)
    async with app.run_test(size=(160, 45)) as pilot:
        client.tell(PhaseChanged(phase="rolling_out", detail=text), WarningRaised(message=text))
        client.tell(PromptChanged(prompt_version=2, system_prompt=text))
        client.tell(*fakes.hand(1, [(text, text, "keyword")], 1.0, system_prompt=text))
        await sees(pilot, "episode 1 ")
        assert harmful(shown(pilot)) == []
        await pilot.press("slash")
        app.screen.query_one(Input).post_message(Paste(text))
        await until(pilot, lambda: app.screen.query_one(Input).value)
        await pilot.pause()
        assert harmful(shown(pilot)) == []
        await pilot.press("escape", "p")
        await until(pilot, lambda: isinstance(app.screen, PromptEditor))
        await pilot.pause()
        assert harmful(shown(pilot)) == []
        await pilot.press("escape")
        client.tell(SessionFailed(message=text))
        await sees(pilot, "NO TRAINER")
        assert harmful(shown(pilot)) == []


async def test_what_is_pasted_into_the_prompt_is_literal(make_app: MakeApp):
    client = fakes.FakeClient(fakes.opening_events())
    app = make_app(client)
    async with app.run_test(size=(80, 24)) as pilot:
        await sees(pilot, "rolling out")
        await pilot.press("p")
        await until(pilot, lambda: isinstance(app.screen, PromptEditor))
        area = app.screen.query_one(TextArea)
        area.post_message(Paste("\x1b[2Jx"))
        await until(pilot, lambda: area.text.endswith("x"))
        assert area.text.endswith("␛[2Jx")
        assert area.text.count("[2J") == 1


async def test_a_line_of_a_megabyte_is_shown_without_delay(make_app: MakeApp):
    client = fakes.FakeClient(fakes.opening_events())
    async with make_app(client).run_test(size=(80, 24)) as pilot:
        client.tell(*fakes.hand(1, [("x" * 1_000_000, '{"action": 0}', "json")], 1.0))
        await sees(pilot, "more characters)")


async def test_random_conversations_are_harmless_at_every_width():
    rng = random.Random(11)
    app = Bare()
    async with app.run_test(size=(40, 20)) as pilot:
        for width in (17, 40, 93):
            transcript = Transcript()
            for episode in range(12):
                parts = [rng.choice(NASTY), chr(rng.randrange(0x11000)), " ", "x" * rng.randrange(99), "日" * 40]
                text = "".join(rng.choice(parts) for _ in range(20))
                for event in fakes.hand(episode, [(text, text, "failed")], -1.0, system_prompt=text):
                    transcript = transcript.tell(event)
            await pilot.resize_terminal(width, 20)
            view = app.query_one(ConversationView)
            view.show(transcript.note(text).entries)
            view.find(rng.choice(NASTY))
            await pilot.pause(0.1)
            for _ in range(12):
                for y in range(view.size.height):
                    strip = view.render_line(y)
                    assert strip.cell_length == view.scrollable_content_region.width
                    assert harmful("".join(segment.text for segment in strip)) == []
                view.scroll_relative(y=-15, animate=False, immediate=True)
                await pilot.pause()
