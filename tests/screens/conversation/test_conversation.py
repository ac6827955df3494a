"""The conversation as a list of turns: bounded work, places that stay, marks, literal words."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace
from textual.app import ComposeResult

from llamagym_tui.protocol.events import ActionsProbed, ObservationShown, TokensStreamed
from llamagym_tui.screens.conversation import view
from llamagym_tui.screens.conversation.turns import (
    in_full,
    line_of,
    paragraphs,
    return_text,
    rows_of,
)
from llamagym_tui.screens.conversation.view import ConversationPane, ConversationView
from llamagym_tui.screens.widgets.lines import MARK
from llamagym_tui.state.transcript import MAX_ENTRIES, ReplySoFar, Transcript
from tests import fakes
from tests.protocol.test_literal import NASTY, harmful
from tests.screens.steps import BareApp, sees, shown, until

SIZE = (60, 16)
HIT = '{"action": 1}'


class Bare(BareApp):
    """A conversation and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.view = ConversationView(id="view")

    def compose(self) -> ComposeResult:
        yield ConversationPane(self.view)

    def on_mount(self) -> None:
        self.view.focus()


def hands(count: int, transcript: Transcript | None = None, first: int = 0) -> Transcript:
    """A conversation of hands of one turn each."""
    transcript = transcript or Transcript()
    for episode in range(first, first + count):
        turns = [(f"Your total: 14. ({episode})", HIT, "json")]
        for event in fakes.hand(episode, turns, 1.0):
            if not isinstance(event, TokensStreamed):
                transcript = transcript.after(event)
    return transcript


def lines(transcript: Transcript, width: int = 60) -> list[str]:
    return [line_of(row, width).plain.rstrip() for row in rows_of(transcript.entries, [])]


# Rows and their texts


def test_a_turn_is_a_line_with_observation_action_and_result():
    transcript = Transcript()
    turns = [("You stand at 1.", HIT, "json"), ("You stand at 2.", "hm", "failed")]
    for event in fakes.hand(1200, turns, -1.0):
        transcript = transcript.after(event)  # type: ignore[arg-type]
    transcript = transcript.note("A\nnotice.")
    first, second, notice = lines(transcript)
    assert first.split() == ["1,200", "You", "stand", "at", "1.", "hit"]
    assert second.split() == ["·2", "You", "stand", "at", "2.", "no", "action", "named", "▼", "−1"]
    assert second.endswith("▼ −1")
    assert len(second) == 60
    assert notice.strip() == "A notice."


def test_an_episode_that_nobody_rewarded_has_no_number():
    assert return_text(math.nan)[0] == "no reward"


def test_actions_stand_below_each_other_whatever_came_of_them():
    transcript = Transcript()
    for number, earned in enumerate((0.0, -1.0, 12.0)):
        for event in fakes.hand(number, [("You stand at 1.", HIT, "json")], earned):
            transcript = transcript.after(event)  # type: ignore[arg-type]
    assert len({line.index("hit") for line in lines(transcript, 38)}) == 1


def test_a_long_observation_leaves_room_for_the_action():
    transcript = Transcript()
    for event in fakes.hand(0, [("日本 " * 99, HIT, "json")], 1.0):
        transcript = transcript.after(event)  # type: ignore[arg-type]
    (row,) = rows_of(transcript.entries, [])
    line = line_of(row, 40)
    assert line.cell_length <= 40
    assert "…  hit" in line.plain
    assert line.plain.endswith("▲ +1")


def test_rows_that_come_one_by_one_are_those_of_the_whole():
    transcript, rows = Transcript(), []
    for event in [*fakes.hand(0, [("a", HIT, "json"), ("b", HIT, "json")], 1.0)]:
        transcript = transcript.after(event)  # type: ignore[arg-type]
        before = rows
        rows = rows_of(transcript.entries, rows)
        assert rows == rows_of(transcript.entries, [])
        assert all(new is old for new, old in zip(rows, before[:-1], strict=False))
    assert [row.turn for row in rows] == [(0, 0), (0, 1)]
    later = hands(9)
    assert rows_of(later.entries[20:], rows_of(later.entries, []))[0].turn == (4, 0)


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (ReplySoFar(0, 0, HIT, done=True), [HIT]),
        (ReplySoFar(0, 0, f"It is low. {HIT}", done=True), ["It is low. ", HIT]),
        (ReplySoFar(0, 0, f"<think>12?</think>\n\n{HIT}", done=True), ["[thought] ", HIT]),
        (ReplySoFar(0, 0, "<think>12 and"), ["<think>12 and", "▌"]),
        (
            ReplySoFar(0, 0, f"<think>12?</think>Low. {HIT}", done=True),
            ["[thought] Low. ", HIT],
        ),
    ],
)
def test_a_reason_stands_apart_from_its_action_and_a_thought_that_is_over_is_folded(
    reply: ReplySoFar, said: list[str]
) -> None:
    (paragraph,) = paragraphs(reply)
    text = paragraph.text
    assert [text.plain[span.start : span.end] for span in text.spans if span.end] == said


def test_a_turn_in_full_is_wrapped_beside_its_labels():
    (row,) = rows_of(hands(1).entries, [])
    assert [line.rstrip() for line in in_full(row, 20).plain.split("\n") if "env" in line] == [
        "env     Your total:"
    ]
    assert "        14. (0)" in in_full(row, 20).plain
    assert "system  " in in_full(row, 60).plain
    assert "action  hit · read as JSON · reward +1" in in_full(row, 60).plain
    assert "you     {" in in_full(row, 60, by_person=True).plain


def test_turns_that_a_prompt_leaves_out_are_named_above_its_observation() -> None:
    shown = ObservationShown(episode=0, turn=9, text="You see a hill.", left_out=1)
    above, env = paragraphs(shown)
    assert above.text.plain == "The prompt leaves out the oldest 1 turn of the episode."
    assert env.text.plain == "You see a hill."
    assert len(paragraphs(replace(shown, left_out=0))) == 1


def test_the_most_probable_actions_are_shown():
    probed = ActionsProbed(episode=0, turn=0, names=["stick", "hit"], shares=[0.25, 0.7])
    (policy,) = paragraphs(probed)
    assert policy.label == "policy"
    assert policy.text.plain == "hit 70% ███████  stick 25% ██▌  other replies 5%"


@pytest.mark.parametrize("width", [17, 40, 93])
def test_texts_of_strangers_are_harmless_at_every_width(width: int):
    transcript = Transcript().note(NASTY[0])
    for episode, text in enumerate(NASTY):
        turns = [(f"{text} {'日' * 40}", text, "keyword")]
        for event in fakes.hand(episode, turns, 1.0, system_prompt=text):
            transcript = transcript.after(event)  # type: ignore[arg-type]
    for row in rows_of(transcript.entries, []):
        line = line_of(row, width)
        assert harmful(line.plain) == []
        assert line.cell_length <= width
        assert harmful(in_full(row, width).plain) == []


# The list


async def test_of_five_thousand_turns_only_what_is_seen_is_drawn(monkeypatch: pytest.MonkeyPatch):
    drawn: list[int] = []
    monkeypatch.setattr(
        view, "line_of", lambda row, width: (drawn.append(row.serial), line_of(row, width))[1]
    )
    app, transcript = Bare(), hands(5000)
    async with app.run_test(size=SIZE) as pilot:
        app.view.show(transcript.entries)
        await sees(pilot, "(4999)")
        assert MAX_ENTRIES - 128 <= len(transcript.entries) <= MAX_ENTRIES
        assert len(set(drawn)) <= 2 * SIZE[1]
        app.view.show(hands(1, transcript, 5000).entries)
        await sees(pilot, "(5000)")


async def test_the_newest_turn_is_followed_until_one_scrolls():
    app, transcript = Bare(), hands(40)
    async with app.run_test(size=SIZE) as pilot:
        app.view.show(transcript.entries)
        await sees(pilot, "(39)")
        await pilot.press("pageup")
        await sees(pilot, "▼ end goes to the newest")
        top = shown(pilot).split("\n")[0]
        app.view.show(hands(3, transcript, 40).entries)
        await pilot.pause(0.1)
        assert shown(pilot).split("\n")[0] == top
        await pilot.press("G")
        await sees(pilot, "(42)")
        await until(pilot, lambda: "end goes" not in shown(pilot), "no hint")
        await pilot.press("pageup")
        await pilot.click(".hint")
        await sees(pilot, "(42)")


async def test_a_readers_place_stays_while_the_oldest_entries_go():
    app, transcript = Bare(), hands(5000)
    async with app.run_test(size=SIZE) as pilot:
        app.view.show(transcript.entries)
        app.view.scroll_to(y=1200, animate=False, immediate=True)
        await pilot.pause(0.1)
        before = shown(pilot).split("\n")[0]
        app.view.show(hands(300, transcript, 5000).entries)
        await pilot.pause(0.1)
        assert shown(pilot).split("\n")[0] == before


async def test_the_newest_turn_is_shown_in_full_where_play_is_watched_and_grows():
    app, transcript = Bare(), hands(1)
    app.view.shows_newest = True
    async with app.run_test(size=SIZE) as pilot:
        app.view.show(transcript.entries)
        await sees(pilot, "action  hit · read as JSON")
        transcript = transcript.after(ObservationShown(episode=1, turn=0, text="Look."))
        for text in ("I ", "would"):
            transcript = transcript.after(TokensStreamed(episode=1, turn=0, text=text))
            app.view.show(transcript.entries)
        await sees(pilot, "model   I would▌")
        app.view.mark_next(-1)
        app.view.mark_next(-1)
        await sees(pilot, "env     Your total: 14. (0)")


async def test_a_marked_turn_is_seen_without_colour_and_goes_with_its_entries():
    app, transcript = Bare(), hands(20)
    async with app.run_test(size=SIZE) as pilot:
        app.view.show(transcript.entries)
        app.view.mark_next(-1)
        app.view.mark_next(-1)
        await sees(pilot, f"18     {MARK}")
        assert not app.view.following
        app.view.show(hands(2000, transcript, 20).entries)
        await until(pilot, lambda: app.view.marked is None, "its entry is gone")
