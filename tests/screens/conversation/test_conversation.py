"""The conversation as a widget: bounded work however long it is, places that stay, selection, search, words."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from msgspec.structs import replace
from textual.app import ComposeResult
from textual.content import Content
from textual.geometry import Offset
from textual.pilot import Pilot
from textual.selection import Selection

from llamagym_tui.protocol.events import (
    ActionsProbed,
    EpisodeStarted,
    ObservationShown,
    TokensStreamed,
)
from llamagym_tui.screens.conversation import typesetting, view
from llamagym_tui.screens.conversation.entry_text import paragraphs
from llamagym_tui.screens.conversation.pane import ConversationPane
from llamagym_tui.screens.conversation.view import ConversationView
from llamagym_tui.state.transcript import MAX_ENTRIES, ReplySoFar, Transcript
from tests import fakes
from tests.screens.steps import BareApp, sees, shown, stands_still, until

SIZE = (60, 16)
LONG = "The dealer looks at you for a long while and says that the cards are cold tonight. " * 3


class Bare(BareApp):
    """A conversation and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.view = ConversationView()

    def compose(self) -> ComposeResult:
        yield ConversationPane(self.view)

    def on_mount(self) -> None:
        self.view.focus()


def hands(
    count: int, transcript: Transcript | None = None, first: int = 0, text: str = "Your total: 14."
) -> Transcript:
    """A conversation of hands of one turn each."""
    transcript = transcript or Transcript()
    for episode in range(first, first + count):
        for event in fakes.hand(episode, [(f"{text} ({episode})", '{"action": 1}', "json")], 1.0):
            if not isinstance(event, TokensStreamed):
                transcript = transcript.after(event)
    return transcript


async def test_lines_are_set_again_for_other_colours_and_not_because_the_focus_went():
    app = Bare()
    async with app.run_test(size=SIZE) as pilot:
        app.view.show(hands(3).entries)
        await sees(pilot, "14. (2)")
        line = app.view.line_at(1)
        app.set_focus(None)
        await stands_still(pilot)
        assert app.view.line_at(1) is line
        app.theme = "textual-light"
        await stands_still(pilot)
        assert app.view.line_at(1) is not line


async def test_the_system_prompt_is_shown_where_it_is_another_one_alone():
    app, transcript = Bare(), Transcript()
    for episode, prompt in enumerate(["Hit.", "Hit.", "Stick.", "Stick.", "Hit."]):
        transcript = transcript.after(
            EpisodeStarted(episode=episode, system_prompt=prompt, prompt_version=0, mode="train")
        )
    async with app.run_test(size=SIZE) as pilot:
        app.view.show(transcript.entries)
        await sees(pilot, "episode 4")
        system = [
            line.split()[1] for line in shown(pilot).splitlines() if line.startswith("system")
        ]
        assert system == ["Hit.", "Stick.", "Hit."]


HIT = '{"action": 1}'


@pytest.mark.parametrize(
    ("reply", "pieces"),
    [
        (ReplySoFar(0, 0, HIT, done=True), [(HIT, "agent")]),
        (
            ReplySoFar(0, 0, f"It is low. {HIT}", done=True),
            [("It is low. ", "aside"), (HIT, "agent-action")],
        ),
        (
            ReplySoFar(0, 0, f"<think>12?</think>\n\n{HIT}", done=True),
            [("[thought] ", "aside"), (HIT, "agent-action")],
        ),
        (ReplySoFar(0, 0, "<think>12 and"), [("<think>12 and", "aside"), ("▌", "agent-action")]),
        (
            ReplySoFar(0, 0, f"<think>12?</think>Low. {HIT}", done=True),
            [("[thought] ", "aside"), ("Low. ", "aside"), (HIT, "agent-action")],
        ),
    ],
)
def test_a_reason_stands_apart_from_its_action_and_a_thought_that_is_over_is_folded(
    reply: ReplySoFar, pieces: list[tuple[str, str]]
) -> None:
    (said,) = paragraphs(reply, prompt_is_new=False)
    assert [tuple(piece) for piece in said.pieces] == pieces


def test_turns_that_a_prompt_leaves_out_are_named_above_its_observation() -> None:
    shown = ObservationShown(episode=0, turn=9, text="You see a hill.", left_out=1)
    above, env = paragraphs(shown, prompt_is_new=False)
    assert (
        above.pieces[0].text
        == "the oldest turn of the episode is left out: the model reads no more"
    )
    assert [piece.text for piece in env.pieces] == ["You see a hill."]
    (above, _) = paragraphs(replace(shown, left_out=3), prompt_is_new=False)
    assert (
        above.pieces[0].text
        == "the 3 oldest turns of the episode are left out: the model reads no more"
    )
    assert len(paragraphs(replace(shown, left_out=0), prompt_is_new=False)) == 1


@pytest.fixture
def set_blocks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Serials of the entries that were set in lines."""
    found: list[int] = []
    plain = typesetting.Typesetter.lines

    def lines(self: Any, block: Any, highlight: Any = None) -> Any:
        found.append(block.entry.serial)
        return plain(self, block, highlight)

    monkeypatch.setattr(typesetting.Typesetter, "lines", lines)
    return found


async def test_of_five_thousand_turns_only_what_is_seen_is_set_in_lines(set_blocks: list[int]):
    app = Bare()
    async with app.run_test(size=SIZE) as pilot:
        transcript = hands(5000)
        app.view.show(transcript.entries)
        await sees(pilot, "(4999)")
        assert len(transcript.entries) >= MAX_ENTRIES - 128
        assert len(set(set_blocks)) <= 4 * SIZE[1]
        set_blocks.clear()
        for turn in range(5):
            transcript = hands(1, transcript, 5000 + turn)
            app.view.show(transcript.entries)
            await sees(pilot, f"({5000 + turn})")
        assert len(set(set_blocks)) <= 5 * 5 + SIZE[1], "another turn costs a turn"


async def test_what_is_kept_of_a_conversation_is_bounded():
    app = Bare()
    async with app.run_test(size=SIZE) as pilot:
        transcript = Transcript()
        for part in range(6):
            transcript = hands(1000, transcript, 1000 * part, text=LONG if part == 5 else "x")
            app.view.show(transcript.entries)
        await sees(pilot, "(5999)")
        for _ in range(50):
            app.view.scroll_relative(y=-40, animate=False)
            await pilot.pause()
        assert len(app.view._blocks) == len(transcript.entries) <= MAX_ENTRIES
        assert len(app.view._set_lines) <= view.KEPT


async def test_lines_that_are_counted_are_those_that_are_set():
    app = Bare()
    async with app.run_test(size=SIZE) as pilot:
        app.view.show(hands(150, text=LONG).entries)
        await sees(pilot, "(149)")
        lines = [app.view.line_at(number) for number in app.view.line_numbers]
        assert None not in lines
        text = " ".join(line.plain.strip() for line in lines if line is not None)
        assert all(f"tonight. ({episode})" in text for episode in range(150))
        assert text.count("cards are cold") == 3 * 150
        assert app.view.virtual_size.height == len(lines)


def test_lines_of_a_text_are_counted_as_they_are_wrapped():
    rng = random.Random(5)
    for _ in range(3000):
        letters = rng.choice(["ab \n", "a ", "abc  ", "日a \n", "ab\t ", "a│▌ ", " \na", "é’— \n"])
        text = "".join(rng.choices(letters, k=rng.randrange(40)))
        room = rng.randrange(2, 14)
        assert typesetting.line_count(text, room) == len(Content(text).wrap(room)), (text, room)


async def test_lines_of_entries_that_are_gone_are_forgotten_with_them():
    app = Bare()
    async with app.run_test(size=(60, 12)) as pilot:
        whole = list(hands(40, text=LONG).entries)
        app.view.show(whole)
        await sees(pilot, "(39)")
        app.view.show(whole[20:])
        # Back again: the prompt of the first episode is now shown in full, in more lines.
        app.view.show(whole[16:])
        lines = [app.view.line_at(number) for number in app.view.line_numbers]
        assert None not in lines
        assert app.view.virtual_size.height == len(lines)


async def test_the_newest_entry_is_set_again_when_it_has_grown():
    app = Bare()
    async with app.run_test(size=SIZE) as pilot:
        *before, last = hands(1).entries
        for text in ("Your", "Your total: 15."):
            fact = ObservationShown(episode=1, turn=0, text=text)
            app.view.show([*before, replace(last, fact=fact)])
            await sees(pilot, f"env     {text}")
        assert shown(pilot).count("env     ") == 2


async def test_a_new_width_keeps_the_readers_place():
    app = Bare()
    async with app.run_test(size=SIZE) as pilot:
        app.view.show(hands(150, text=LONG).entries)
        await sees(pilot, "(149)")
        first = next(
            n
            for n in app.view.line_numbers
            if (line := app.view.line_at(n)) and "episode 70 " in line.plain
        )
        app.view.scroll_to(y=first, animate=False, immediate=True)
        await sees(pilot, "episode 70 ")
        await pilot.resize_terminal(90, 20)
        await until(pilot, lambda: "episode 70 " in shown(pilot).split("\n")[0], "the same place")
        assert not app.view.following


async def test_the_tail_is_followed_through_a_new_width():
    app = Bare()
    async with app.run_test(size=SIZE) as pilot:
        app.view.show(hands(150, text=LONG).entries)
        await sees(pilot, "(149)")
        await pilot.resize_terminal(90, 20)
        await sees(pilot, "return  ▲ +1 · 1 turn, terminated")
        assert app.view.following


async def test_messages_that_wait_are_counted_until_they_are_seen():
    app = Bare()
    async with app.run_test(size=SIZE) as pilot:
        transcript = hands(20)
        app.view.show(transcript.entries)
        await sees(pilot, "(19)")
        await pilot.press("pageup")
        await sees(pilot, "▼ scrolled back · end or G goes to the newest")
        for first, waiting in ((20, 2), (21, 4), (22, 6)):
            transcript = hands(1, transcript, first)
            app.view.show(transcript.entries)
            await sees(pilot, f"▼ {waiting} new messages below")
        await pilot.press("G")
        await sees(pilot, "(22)")
        await until(pilot, lambda: "goes to the newest" not in shown(pilot), "no hint")
        assert app.view.tail[1] == 0


async def test_a_page_is_turned_at_once():
    app = Bare()
    async with app.run_test(size=SIZE) as pilot:
        app.animation_level = "full"
        app.view.show(hands(20).entries)
        await sees(pilot, "(19)")
        end, height = app.view.scroll_offset.y, app.view.size.height
        app.view.action_page_up()
        assert app.view.scroll_offset.y == end - height
        app.view.action_page_down()
        assert app.view.scroll_offset.y == end
        assert app.view.following


async def test_a_click_on_the_hint_goes_to_the_newest():
    app = Bare()
    async with app.run_test(size=SIZE) as pilot:
        app.view.show(hands(20).entries)
        await sees(pilot, "(19)")
        await pilot.press("pageup")
        await sees(pilot, "▼ scrolled back")
        await pilot.click("MoreBelow")
        await until(pilot, lambda: app.view.following, "following")


async def test_a_readers_place_stays_while_the_oldest_entries_go():
    app = Bare()
    async with app.run_test(size=SIZE) as pilot:
        transcript = hands(5000)
        app.view.show(transcript.entries)
        await sees(pilot, "(4999)")
        app.view.scroll_relative(y=-200, animate=False, immediate=True)
        await pilot.pause(0.1)
        before = shown(pilot).split("\n")[0]
        app.view.show(hands(300, transcript, 5000).entries)
        await pilot.pause(0.1)
        assert shown(pilot).split("\n")[0] == before


async def test_text_is_selected_with_the_mouse_and_copied():
    app = Bare()
    async with app.run_test(size=SIZE) as pilot:
        app.view.show(hands(1).entries)
        await sees(pilot, "env     Your total: 14.")
        row = next(y for y, line in enumerate(shown(pilot).split("\n")) if line.startswith("env"))
        await pilot.mouse_down(app.view, offset=(8, row))
        await pilot.hover(app.view, offset=(18, row))
        await pilot.mouse_up(app.view, offset=(18, row))
        assert app.screen.get_selected_text() == "Your total:"
        await pilot.press("ctrl+c")
        assert app.clipboard == "Your total:"


async def test_a_selection_keeps_its_text_while_the_oldest_entries_go():
    app = Bare()
    async with app.run_test(size=SIZE) as pilot:
        transcript = hands(5000)
        app.view.show(transcript.entries)
        await sees(pilot, "(4999)")
        number = next(
            n
            for n in app.view.line_numbers
            if (line := app.view.line_at(n)) and "(4990)" in line.plain
        )
        app.screen.selections = {app.view: Selection(Offset(8, number), Offset(30, number + 1))}
        text = app.screen.get_selected_text()
        assert text is not None
        assert text.startswith("Your total: 14. (4990)\nagent")
        app.view.show(hands(200, transcript, 5000).entries)
        assert app.view.line_numbers.start > 0
        assert app.screen.get_selected_text() == text


async def test_everything_can_be_selected():
    app = Bare()
    async with app.run_test(size=SIZE) as pilot:
        app.view.show(hands(30).entries)
        await sees(pilot, "(29)")
        found = app.view.get_selection(Selection(None, None))
        assert found is not None
        assert len(found[0].split("\n")) == len(app.view.line_numbers)


async def test_a_slash_searches_and_n_goes_through_the_matches(set_blocks: list[int]):
    app = Bare()
    async with app.run_test(size=SIZE) as pilot:
        app.view.show(hands(200).entries)
        await sees(pilot, "(199)")
        await pilot.press("slash", *"(1", "7")
        await sees(pilot, "11 of 11")
        await sees(pilot, "Your total: 14. (179)")
        await pilot.press("enter", "n")
        await sees(pilot, "10 of 11")
        await pilot.press("N", "N")
        await sees(pilot, "1 of 11")
        await sees(pilot, "Your total: 14. (17)")
        await pilot.press("escape")
        await until(pilot, lambda: "of 11" not in shown(pilot), "the end of the search")
        assert app.view.search is None
        assert app.focused is app.view


async def test_a_match_that_is_wrapped_is_marked_on_both_lines():
    app = Bare()
    async with app.run_test(size=SIZE) as pilot:
        app.view.show(hands(1, text=LONG).entries)
        await sees(pilot, "(0)")
        app.view.find(LONG[:60])
        await sees(pilot, "cards are")
        lines = [line for n in app.view.line_numbers if (line := app.view.line_at(n))]
        marked = [line for line in lines if any(span.style == view.CURRENT for span in line.spans)]
        assert len(marked) == 2


async def test_what_comes_while_one_searches_is_found_and_does_not_move_the_match():
    app = Bare()
    async with app.run_test(size=SIZE) as pilot:
        transcript = hands(30)
        app.view.show(transcript.entries)
        await sees(pilot, "(29)")
        await pilot.press("slash", *"total")
        await sees(pilot, "30 of 30")
        before = app.view.scroll_offset
        app.view.show(hands(5, transcript, 30).entries)
        await sees(pilot, "30 of 35")
        await sees(pilot, "▼ 10 new messages below")
        assert app.view.scroll_offset == before


async def test_a_reply_is_searched_when_it_is_whole():
    app = Bare()
    async with app.run_test(size=SIZE) as pilot:
        *under_way, turn, _ = fakes.hand(0, [("Your total: 14.", "I will hit", "keyword")], 1.0)
        transcript = Transcript()
        for event in under_way:
            transcript = transcript.after(event)
        app.view.show(transcript.entries)
        app.view.find("will hit")
        await pilot.pause()
        assert app.view.search is not None
        assert app.view.search.status == "no match"
        app.view.show(transcript.after(turn).entries)
        assert app.view.search.status == "1 of 1"


async def test_another_conversation_takes_the_place_of_one():
    app = Bare()
    async with app.run_test(size=SIZE) as pilot:
        app.view.show(hands(20).entries)
        await sees(pilot, "(19)")
        app.view.show(hands(3, text="Another").entries)
        await sees(pilot, "Another (2)")
        assert "(19)" not in shown(pilot)
        app.view.show(Transcript().entries)
        await until(pilot, lambda: "Another" not in shown(pilot), "nothing")


async def test_who_speaks_what_was_done_and_how_it_was_read_are_told_in_words():
    app = Bare()
    transcript = Transcript()
    for how in ("json", "pattern", "keyword", "custom", "failed"):
        for event in fakes.hand(0, [("14", "hit", how)], -1.0):
            transcript = transcript.after(event)
    async with app.run_test(size=(80, 60)) as pilot:
        app.view.show(transcript.entries)
        await sees(pilot, "read by the agent")
        words = shown(pilot)
        for said in (
            "system",
            "env     14",
            "agent   hit",
            "action  hit · read as JSON · reward −1",
            "return  ▼ −1",
        ):
            assert said in words
        for how in (
            "read by pattern",
            "read by keyword",
            "fallback, because the reply names no action",
        ):
            assert how in words


@pytest.mark.parametrize(
    ("before", "shares", "words"),
    [
        ([], [0.25, 0.7], "policy  hit 70% ███████  stick 25% ██▌  other replies 5%"),
        ([0.5, 0.5], [0.25, 0.75], "updated hit 50% → 75% ███████▌  stick 50% → 25% ██▌"),
        ([], [0.999, 0.0], "policy  stick 100% ██████████  hit 0%"),
        ([], [math.nan, math.nan], "policy  stick no number   hit no number"),
        ([0.5, 0.5], [math.nan, math.nan], "updated stick 50% → no number   hit 50% → no number"),
    ],
)
async def test_the_policys_view_of_the_actions_stands_in_digits_and_bars(
    before: list[float], shares: list[float], words: str
):
    app = Bare()
    async with app.run_test(size=(80, 20)) as pilot:
        probed = ActionsProbed(
            episode=0, turn=0, names=["stick", "hit"], shares=shares, before=before
        )
        app.view.show(Transcript().after(probed).entries)
        await sees(pilot, words)


def test_a_searched_conversation(snap_compare: Any):
    app = Bare()

    async def settled(pilot: Pilot[None]) -> None:
        transcript = hands(8)
        for event in fakes.hand(
            8, [("Your total: 15.", "I think I will hit, or not hit", "failed")], -1.0
        ):
            transcript = transcript.after(event)
        app.view.show(transcript.note("watching environment 2 of 128").entries)
        await sees(pilot, "I think")
        await pilot.press("slash", *"hit")
        await sees(pilot, " of 1")
        await stands_still(pilot)
        await pilot.press("up")

    assert snap_compare(app, terminal_size=(80, 24), run_before=settled)


async def test_an_observation_of_many_lines_stands_in_the_column_of_texts():
    app = Bare()
    async with app.run_test(size=SIZE) as pilot:
        started = EpisodeStarted(episode=0, system_prompt="p", prompt_version=0, mode="train")
        lake = ObservationShown(episode=0, turn=0, text="SFFF\nFHFH\n\nHFFG")
        app.view.show(Transcript().after(started).after(lake).entries)
        await sees(pilot, "env     SFFF")
        assert [line[:12].rstrip() for line in shown(pilot).split("\n")[2:6]] == [
            "env     SFFF", "        FHFH", "", "        HFFG",
        ]  # fmt: skip
