"""No text from a model, an environment or a file steers the terminal or is read as markup."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from msgspec.structs import replace
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.content import Content
from textual.events import Paste
from textual.pilot import Pilot
from textual.widgets import Input, Static, TextArea

from llamagym_tui.app.personal import LONGEST_NOTICE
from llamagym_tui.game.choices import OfferedAction
from llamagym_tui.protocol.events import (
    ActionAwaited,
    ActionsProbed,
    AnyEvent,
    ModeChanged,
    PhaseChanged,
    PolicyMapLaidOut,
    PolicyMapped,
    PromptChanged,
    RunStarted,
    SessionFailed,
    StateDrawn,
    WarningRaised,
    WheelTaken,
)
from llamagym_tui.protocol.inspected import ContextToken, ScoredReply
from llamagym_tui.protocol.literal import literal
from llamagym_tui.protocol.map_layout import MapCell, MapPanel
from llamagym_tui.screens.conversation.turns import in_full, line_of
from llamagym_tui.screens.conversation.view import ConversationView
from llamagym_tui.screens.inspector.inspector import InspectorScreen
from llamagym_tui.screens.play.wheel_screen import WheelScreen
from llamagym_tui.screens.policy_map.screen import PolicyMapScreen
from llamagym_tui.screens.steering.prompt_editor import PromptEditor
from llamagym_tui.screens.widgets.literal import LiteralLines
from llamagym_tui.state.transcript import Transcript
from tests import fakes
from tests.protocol.test_literal import harmful
from tests.screens.conftest import MakeApp
from tests.screens.inspected import InspectedClient, other, scored, told
from tests.screens.steps import BareApp, notices, reaches, rolling_out, sees, shown, until

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

HOSTILE = [" ".join(NASTY[:6]), " ".join(NASTY[6:]), "\x00" * 200, "\x1b[2J\u202e" + "x" * 10_000]
"""For a name, a token or a field: all that is nasty, nothing but NUL, and a long line."""
SIZES = [(80, 24), (160, 45)]
SLOW = ("nul", "long, wide")
"""What finds hardly anything that the others do not: NUL is a control, too."""
each_in_one_size = pytest.mark.parametrize(
    ("text", "size"),
    [
        pytest.param(text, size, id=name, marks=[pytest.mark.slow] * (name in SLOW))
        for name, text, size in zip(
            ("controls", "markup", "nul", "long", "long, wide"),
            (*HOSTILE, HOSTILE[-1]),
            (SIZES[1], SIZES[0], SIZES[1], SIZES[0], SIZES[1]),
            strict=True,
        )
    ],
)
each_text = pytest.mark.parametrize(
    "text",
    [
        pytest.param(text, id=name, marks=[pytest.mark.slow] * (name in SLOW))
        for name, text in zip(("controls", "markup", "nul", "long"), HOSTILE, strict=True)
    ],
)
UNPATCHED = LiteralLines.apply
"""Without the assertion that it has nothing to do."""


def test_brackets_are_brackets():
    assert Content(literal("[b]Action: [hit][/]")).plain == "[b]Action: [hit][/]"


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
        await sees(pilot, "rolling out")
        app.screen.notify("[red]a\x1b\nb[/red]" + "x" * 10_000, markup=True)
        await sees(pilot, "[red]a␛")
        assert len(notices(app)[0]) == LONGEST_NOTICE


async def test_what_cannot_be_encoded_is_copied_as_a_question_mark(make_app: MakeApp):
    app = make_app()
    async with app.run_test(size=(80, 24)):
        app.copy_to_clipboard("a\ud800")
        assert app.clipboard == "a?"


class Bare(BareApp):
    def compose(self):
        yield ConversationView()


async def test_no_strip_of_a_conversation_has_an_escape():
    rng = random.Random(3)
    transcript = Transcript()
    for episode in range(60):
        text = " ".join(rng.sample(NASTY, 4))
        for event in fakes.hand(episode, [(text, text, "keyword")], 1.0, system_prompt=text):
            transcript = transcript.after(event)
    app = Bare()
    async with app.run_test(size=(61, 20)) as pilot:
        view = app.query_one(ConversationView)
        view.show(transcript.note(NASTY[0]).entries)
        await pilot.pause()
        view.mark_next(-1)
        for row in view.rows:
            assert harmful(in_full(row, 40).plain) == []
            assert harmful(line_of(row, 40).plain) == []
        for y in range(view.size.height):
            strip = view.render_line(y)
            assert strip.cell_length == view.scrollable_content_region.width
            assert harmful("".join(segment.text for segment in strip)) == []


@pytest.mark.parametrize(
    "text",
    [
        " ".join(NASTY[:6]),
        NASTY[6],
        *(pytest.param(text, marks=pytest.mark.slow) for text in NASTY[7:9]),
        " ".join(NASTY[9:]),
    ],
)
async def test_no_screen_shows_an_escape(make_app: MakeApp, text: str):
    text = text.encode("utf-8", "replace").decode()  # as it comes over the wire
    client = fakes.FakeClient()
    app = make_app(client)
    async with app.run_test(size=(160, 45)) as pilot:
        client.emit(PhaseChanged(phase="rolling_out", detail=text), WarningRaised(message=text))
        client.emit(PromptChanged(prompt_version=2, system_prompt=text))
        client.emit(*fakes.hand(1, [(text, text, "keyword")], 1.0, system_prompt=text))
        await sees(pilot, " 1       ")
        assert harmful(shown(pilot)) == []
        await pilot.press("slash")
        app.screen.query_one(Input).post_message(Paste(text))
        await until(pilot, lambda: app.screen.query_one(Input).value)
        await pilot.pause()
        assert harmful(shown(pilot)) == []
        await pilot.press("escape", "p")
        await reaches(pilot, PromptEditor)
        await pilot.pause()
        assert harmful(shown(pilot)) == []
        await pilot.press("escape")
        client.emit(SessionFailed(message=text))
        await sees(pilot, "NO TRAINER")
        assert harmful(shown(pilot)) == []


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


async def test_lines_of_a_paste_are_lines_however_they_end(make_app: MakeApp):
    """tmux's ``paste-buffer`` ends them with carriage returns."""
    client = fakes.FakeClient()
    app = make_app(client)
    async with rolling_out(app, (80, 24)) as pilot:
        await pilot.press("p")
        await reaches(pilot, PromptEditor)
        area = app.screen.query_one(TextArea)
        pasted = fakes.PROMPT
        for line_end in ("\r", "\n", "\r\n"):
            area.post_message(Paste(f"one{line_end}{line_end}two"))
            pasted += "one\n\ntwo"
            await until(pilot, lambda text=pasted: area.text == text, repr(line_end))


@pytest.mark.parametrize("key", ["s", "slash"])
async def test_lines_pasted_into_an_input_are_words_without_controls(make_app: MakeApp, key: str):
    app = make_app()
    async with rolling_out(app, (80, 24)) as pilot:
        await pilot.press(key)
        await until(pilot, lambda: app.screen.query(Input))
        field = app.screen.query_one(Input)
        field.clear()
        field.post_message(Paste("1\x1b\r2\n3"))
        await until(pilot, lambda: field.value)
        assert field.value == "1␛ 2 3"


async def test_a_line_of_a_megabyte_is_shown_without_delay(make_app: MakeApp):
    client = fakes.FakeClient()
    async with make_app(client).run_test(size=(80, 24)) as pilot:
        client.emit(*fakes.hand(1, [("x" * 1_000_000, '{"action": 0}', "json")], 1.0))
        await sees(pilot, "xxx…  stick")
        await pilot.press("k")
        await sees(pilot, "xxx…  stick")


async def test_random_conversations_are_harmless_at_every_width():
    rng = random.Random(11)
    app = Bare()
    async with app.run_test(size=(40, 20)) as pilot:
        for width in (17, 40, 93):
            transcript = Transcript()
            for episode in range(12):
                parts = [
                    rng.choice(NASTY),
                    chr(rng.randrange(0x11000)),
                    " ",
                    "x" * rng.randrange(99),
                    "日" * 40,
                ]
                text = "".join(rng.choice(parts) for _ in range(20))
                for event in fakes.hand(
                    episode, [(text, text, "failed")], -1.0, system_prompt=text
                ):
                    transcript = transcript.after(event)
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


def wired(text: str) -> str:
    """As it comes over the wire, where no lone surrogate can stand."""
    return text.encode("utf-8", "replace").decode()


def named(text: str) -> Iterator[AnyEvent]:
    """A run whose names are all the same text."""
    for event in fakes.opening_events():
        renamed = {"agent": text, "env_id": text, "action_names": [text, text], "draws": True}
        yield replace(event, **renamed) if isinstance(event, RunStarted) else event


@each_in_one_size
async def test_tokens_and_replies_that_are_inspected_are_literal(
    make_app: MakeApp, text: str, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
):
    text = wired(text)
    beside = {
        "before": [ContextToken(text=text, trained=False)],
        "after": [ContextToken(text=text, trained=True)],
    }
    reply = told(1, 0, **beside)
    tokens = [
        replace(token, text=text, alternatives=[other(9, text, 0.6), other(7, text, 0.4)])
        for token in reply.tokens
    ]
    replies = [
        ScoredReply(text=text, score=-0.4, probability=0.5, chosen=chosen)
        for chosen in (True, False)
    ]
    answers = [
        replace(reply, tokens=tokens),
        replace(scored(reply), tokens=tokens, replies=replies),
    ]
    client = InspectedClient(fakes.opening_events())
    monkeypatch.setattr(client, "_answer", lambda command: answers[len(client.inspected) - 1])
    app = make_app(client)
    async with app.run_test(size=size) as pilot:
        client.emit(*fakes.hand(1, [("12", text[:200], "failed")], 1.0))
        await sees(pilot, " 1       ")
        await pilot.press("i")
        await sees(pilot, "sampled by policy 39")
        for key in ("down", "up", "up", "r", "down"):
            await pilot.press(key)
            await pilot.pause()
            assert isinstance(app.screen, InspectorScreen)
            assert harmful(shown(pilot)) == []
        assert len(client.inspected) == 2


async def harmless(pilot: Pilot[None]) -> bool:
    """Whether nothing on the screen steers the terminal, at every size."""
    found = []
    for size in SIZES:
        await pilot.resize_terminal(*size)
        await pilot.pause()
        found += harmful(shown(pilot))
    return not found


@each_text
async def test_words_labels_and_signs_of_a_policy_map_are_literal(make_app: MakeApp, text: str):
    text = wired(text)[:2000]
    cell, hole = MapCell(words=text, best=[1]), MapCell(words=text, sign=text)
    panel = MapPanel(
        title=text,
        row_name=text,
        column_name=text,
        rows=[text] * 2,
        columns=[text] * 2,
        cells=[[cell, hole]] * 2,
    )
    laid = {"panels": [panel] * 2, "action_names": [text, text], "signs": [text, text]}
    mapped = PolicyMapped(update=1, prompt_version=1, shares=[[0.7, 0.3]] * 4)
    client = fakes.FakeClient(iter([*named(text), PolicyMapLaidOut(**laid), mapped]))
    app = make_app(client)
    async with rolling_out(app, SIZES[0]) as pilot:
        await pilot.press("g")
        for action in (None, 1):
            client.emit(PolicyMapLaidOut(**laid, action=action), mapped)
            await sees(pilot, "of 4")
            for key in ("down", "right", "tab", "o"):
                await pilot.press(key)
                assert isinstance(app.screen, PolicyMapScreen)
                assert harmful(shown(pilot)) == []
            assert await harmless(pilot)
        client.emit(PolicyMapLaidOut(why_not=text))
        await pilot.pause(0.15)
        assert await harmless(pilot)


@each_text
async def test_what_stands_at_the_wheel_is_literal(make_app: MakeApp, text: str):
    text = wired(text)
    client = fakes.FakeClient(named(text))
    app = make_app(client)
    async with rolling_out(app, SIZES[0]) as pilot:
        await pilot.press("w")
        client.emit(
            WheelTaken(
                env=0, choices=[OfferedAction("s", 0, text), OfferedAction(text[:1], 1, text)]
            )
        )
        client.emit(*list(fakes.hand(3, [(text, text[:200], "failed")], 0.0))[:2])
        client.emit(ActionAwaited(episode=3, turn=0, reply=text * 100, action_name=text))
        await sees(pilot, "your turn, all others wait")
        assert isinstance(app.screen, WheelScreen)
        assert await harmless(pilot)
        await pilot.press("tab")
        app.screen.query_one(Input).post_message(Paste(text))
        await until(pilot, lambda: app.screen.query_one(Input).value)
        client.emit(PhaseChanged(phase="updating", detail=text), WarningRaised(message=text))
        await pilot.pause(0.15)
        assert await harmless(pilot)


@each_in_one_size
async def test_names_of_actions_and_drawings_are_literal(
    make_app: MakeApp, text: str, size: tuple[int, int]
):
    text = wired(text)
    client = fakes.FakeClient(named(text))
    async with rolling_out(make_app(client), size) as pilot:
        if size == SIZES[0]:
            await pilot.press("v")
        start, observation, *_ = fakes.hand(1, [(text, text[:200], "failed")], 0.0)
        client.emit(
            start, StateDrawn(episode=1, turn=0, text=text, marks=[(0, 1), (3, 10**6)]), observation
        )
        client.emit(
            ActionsProbed(
                episode=1, turn=0, names=[text, text], shares=[0.5, 0.5], before=[0.4, 0.6]
            )
        )
        client.emit(fakes.counted([1.0, -1.0], 4), ModeChanged(mode="inference"))
        client.emit(fakes.counted([1.0, -1.0], 8, mode="inference"))
        await sees(pilot, "+0.0 ± 2.0")
        assert harmful(shown(pilot)) == []
