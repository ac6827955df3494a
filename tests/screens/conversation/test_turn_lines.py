"""The conversation as one line a turn: what stands on it, and how turns are unfolded and folded again."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from llamagym_tui.protocol.events import ActionsProbed, AnyEvent, TokensStreamed, TurnFinished
from llamagym_tui.screens.conversation.turn_line import turn_line
from llamagym_tui.state.transcript import ReplySoFar, Transcript
from tests import fakes
from tests.screens.conversation.test_conversation import LONG, SIZE, Bare, hands
from tests.screens.steps import sees, shown, until


class Folded(Bare):
    def on_mount(self) -> None:
        super().on_mount()
        self.view.fold(True)


def lines_of(app: Bare) -> list[str]:
    """Every line of the view."""
    lines = [app.view.line_at(number) for number in app.view.line_numbers]
    assert None not in lines
    return [line.plain.rstrip() for line in lines if line is not None]


def told(*events: AnyEvent) -> Transcript:
    transcript = Transcript()
    for event in events:
        transcript = transcript.after(event)  # type: ignore[arg-type]
    return transcript


TURNS = [("Your total: 12.", '{"action": 1}', "json"), ("Your total: 19.", "fine", "failed")]


def test_a_reason_stands_before_its_action_and_is_no_longer_than_a_line_has_room_for() -> None:
    for reason, shown_reason in (("Too low.", "Too low. "), ("low " * 30, "low " * 10)):
        said = ReplySoFar(3, 0, f'{reason} {{"action": 1}}', done=True)
        (done,) = (
            each for each in fakes.hand(3, TURNS[:1], -1.0) if isinstance(each, TurnFinished)
        )
        rest = turn_line((3, 0), [said, done], "12 against 3").rest
        assert [tuple(piece) for piece in rest] == [
            (shown_reason.strip() + " ", "aside"),
            ("hit", "action"),
        ]
    plain = turn_line((3, 0), [ReplySoFar(3, 0, TURNS[0][1], done=True), done], "").rest
    assert [piece.text for piece in plain] == ["hit"]


async def test_a_turn_is_one_line_of_what_was_seen_done_and_earned():
    first, second = (
        [replace(each, probability=0.715, words="12 against 3"), replace(each, is_refused=True)]
        for each in fakes.hand(8443, [*TURNS, TURNS[0]], -1.0)
        if isinstance(each, TurnFinished) and each.turn in (0, 1)
    )
    wanted = {(8443, 0): first[0], (8443, 1): second[0], (8443, 2): first[1]}
    events = [
        replace(wanted[8443, each.turn], turn=each.turn, reward=each.reward + (each.turn == 1) / 2)
        if isinstance(each, TurnFinished)
        else each
        for each in fakes.hand(8443, [*TURNS, TURNS[0]], -1.0)
    ]
    app = Folded()
    async with app.run_test(size=SIZE) as pilot:
        app.view.show(told(*events).entries)
        await sees(pilot, "8,443")
        assert [" ".join(line.split()) for line in lines_of(app)] == [
            "8,443 12 against 3 hit 72%",
            "·2 12 against 3 no action named +0.500",
            "·3 Your total: 12. hit refused ▼ −1",
        ]
        ends = [len(line) for line in lines_of(app)[1:]]
        assert ends == [app.view.scrollable_content_region.width] * 2, (
            "figures end below each other"
        )


async def test_the_turn_under_way_shows_its_reply_as_it_grows():
    app, transcript = Folded(), hands(1)
    async with app.run_test(size=SIZE) as pilot:
        *events, _, _ = fakes.hand(7, TURNS[:1], 1.0)
        for event in events:
            transcript = transcript.after(event)
            app.view.show(transcript.entries)
            await pilot.pause()
            assert len(lines_of(app)) == 2
            if isinstance(event, TokensStreamed):
                assert lines_of(app)[1].endswith("▌"), event
        assert "7       Your total: 12." in lines_of(app)[1]


@pytest.mark.parametrize("width", [40, 60, 100])
async def test_however_long_a_text_is_the_action_and_the_return_are_seen(width: int):
    app = Folded()
    async with app.run_test(size=(width, 12)) as pilot:
        app.view.show(hands(3, text=LONG).entries)
        await sees(pilot, "▲ +1")
        for line in lines_of(app):
            assert "…  hit" in line
            assert len(line) <= app.view.scrollable_content_region.width


async def test_enter_and_a_second_click_unfold_the_marked_turn_and_fold_it_again():
    app = Folded()
    app.view._can_mark = True
    async with app.run_test(size=SIZE) as pilot:
        app.view.show(hands(40).entries)
        await sees(pilot, "(39)")
        folded = lines_of(app)
        assert len(folded) == 40
        app.view.mark_next(-1)
        app.view.mark_next(-1)
        top = app.view.scroll_offset.y
        for key in ("enter", None, "enter"):
            is_unfolded = len(lines_of(app)) > 40
            row = next(y for y in range(SIZE[1]) if "(38)" in shown(pilot).split("\n")[y])
            await (pilot.press(key) if key else pilot.click(app.view, offset=(20, row)))
            lines = lines_of(app)
            assert lines[:39] == folded[:39], "those above stay"
            assert (lines == folded) == is_unfolded
            if not is_unfolded:
                starts = [line.split()[0] for line in lines[39:43]]
                assert starts == ["env", "agent", "action", "return"]
                assert "return ▌▲ +1" in shown(pilot), "all of it is in view"
        app.view.action_follow()
        assert app.view.scroll_offset.y > top


async def test_slow_motion_shows_all_of_each_turn_at_the_readers_place():
    app = Folded()
    async with app.run_test(size=SIZE) as pilot:
        app.view.show(hands(200).entries)
        await sees(pilot, "(199)")
        app.view.scroll_to(y=80, animate=False, immediate=True)
        await pilot.pause()
        app.view.fold(False)
        await sees(pilot, "── episode 80 ")
        assert "action  hit · read as JSON · reward +1" in lines_of(app)
        app.view.fold(True)
        await until(pilot, lambda: len(lines_of(app)) == 200, "lines")
        assert "(80)" in shown(pilot).splitlines()[0]


async def test_a_match_unfolds_its_turn_and_the_next_one_folds_it():
    app = Folded()
    async with app.run_test(size=SIZE) as pilot:
        app.view.show(hands(200).entries)
        await sees(pilot, "(199)")
        await pilot.press("slash", *"(17", "enter")
        await sees(pilot, "env     Your total: 14. (179)")
        await pilot.press("n")
        await sees(pilot, "env     Your total: 14. (178)")
        assert "env     Your total: 14. (179)" not in shown(pilot)
        await pilot.press("escape")
        await until(pilot, lambda: len(lines_of(app)) == 200, "all are folded")


def test_lines_that_came_one_by_one_are_those_of_the_whole():
    async def compared(seed: int) -> None:
        rng, app, transcript = random.Random(seed), Folded(), Transcript()
        async with app.run_test(size=SIZE) as pilot:
            for episode in range(12):
                events = list(fakes.hand(episode, TURNS[: rng.randint(1, 2)], 1.0))
                for event in events[: rng.choice((len(events), rng.randrange(len(events))))]:
                    transcript = transcript.after(event)  # type: ignore[arg-type]
                    if rng.random() < 0.1:
                        transcript = transcript.note("A notice.")
                    if rng.random() < 0.2:
                        probed = ActionsProbed(episode=episode, turn=0, names=["a"], shares=[1.0])
                        transcript = transcript.after(probed)
                    if rng.random() < 0.5:
                        app.view.show(transcript.entries)
            app.view.show(transcript.entries)
            await pilot.pause()
            in_steps = lines_of(app)
            app.view.fold(False)
            app.view.fold(True)
            assert lines_of(app) == in_steps
            assert app.view.virtual_size.height >= len(in_steps)

    import asyncio

    for seed in range(3):
        asyncio.run(compared(seed))
