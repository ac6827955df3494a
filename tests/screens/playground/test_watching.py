"""Watching by its keys, against a scripted trainer: which conversation, how fast, step by step."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from textual.events import Key

from llamagym_tui.protocol.commands import (
    AnyCommand,
    Pause,
    SetMode,
    SetPace,
    Step,
    Watch,
)
from llamagym_tui.protocol.events import ModeChanged, PaceChanged, PhaseChanged, WatchChanged
from llamagym_tui.screens.playground.watch_line import WatchLine
from llamagym_tui.state.watching import Watching
from tests import fakes
from tests.screens.conftest import MakeApp
from tests.screens.steps import rolling_out, sees, shown, until

SIZE = (100, 30)


@pytest.mark.parametrize(
    ("key", "command", "words"),
    [
        ("right_square_bracket", Watch(env=1), "watching environment 2 of 128"),
        ("left_square_bracket", Watch(env=127), "watching environment 128 of 128"),
        ("minus", SetPace(turn_s=0.5), "0.5 s a turn, + faster"),
        ("full_stop", Step(), "Paused. space resumes. A period makes one turn, u one update."),
        ("u", Step(unit="update"), "Paused."),
    ],
)
async def test_a_key_asks_and_the_trainers_word_is_shown(
    make_app: MakeApp, key: str, command: AnyCommand, words: str
):
    client = fakes.FakeClient()
    async with rolling_out(make_app(client), SIZE) as pilot:
        await pilot.press(key)
        await sees(pilot, words)
        assert client.sent == [command]


async def test_what_is_not_confirmed_is_only_asked_for(make_app: MakeApp):
    client = fakes.FakeClient(confirms=False)
    async with rolling_out(make_app(client), SIZE) as pilot:
        await pilot.press("right_square_bracket", "right_square_bracket", "minus")
        await sees(pilot, "watching environment 1 of 128 → 3? · full speed → 0.5 s?")
        assert client.sent == [Watch(env=1), Watch(env=2), SetPace(turn_s=0.5)]
        client.emit(
            WatchChanged(env=1),
            WatchChanged(env=2),
            PaceChanged(turn_s=0.5),
        )
        await sees(pilot, "watching environment 3 of 128 · 0.5 s a turn, + faster")


@pytest.mark.parametrize(
    ("width", "words"),
    [
        (300, "watching environment 2 of 128 · 0.5 s a turn, + faster"),
        (60, "watching environment 2 of 128"),
    ],
)
async def test_the_watch_line_says_as_much_as_it_has_room_for(
    make_app: MakeApp, width: int, words: str
):
    told = [WatchChanged(env=1), PaceChanged(turn_s=0.5)]
    client = fakes.FakeClient([*fakes.opening_events(), *told])
    async with make_app(client).run_test(size=(width, 24)) as pilot:
        await until(
            pilot,
            lambda: words in [row.split("│")[0].strip() for row in shown(pilot).splitlines()],
            words,
        )


async def test_a_watch_line_of_a_screen_that_was_left_may_be_told_a_state(make_app: MakeApp):
    app = make_app()
    async with app.run_test(size=SIZE):
        assert app.run_state is not None
        line = WatchLine(
            app.run_state, id="watch-line"
        )  # it is not mounted, as where the screen goes before it came
        line.show(replace(app.run_state, watching=Watching(turn_s=1.5)))
        assert line.display


async def test_keys_that_come_together_count_each(make_app: MakeApp):
    client = fakes.FakeClient(confirms=False)
    async with rolling_out(make_app(client), SIZE) as pilot:
        for key in (
            "right_square_bracket",
            "right_square_bracket",
            "minus",
            "minus",
            "full_stop",
            "full_stop",
        ):
            pilot.app.post_message(
                Key(key, None)
            )  # as a terminal hands them over: none waits for the one before
        await sees(pilot, "→ 3?")
        await until(pilot, lambda: len(client.sent) == 5, "all requests")
        assert client.sent == [
            Watch(env=1),
            Watch(env=2),
            SetPace(turn_s=0.5),
            SetPace(turn_s=1.5),
            Step(),
        ]


async def test_speeds_end_at_both_ends(make_app: MakeApp):
    client = fakes.FakeClient()
    async with rolling_out(make_app(client), SIZE) as pilot:
        await pilot.press("plus")
        for turn_s in ("0.5", "1.5", "4"):
            await pilot.press("minus")
            await sees(pilot, f"{turn_s} s a turn")
        await pilot.press("minus", "equals_sign")
        await sees(pilot, "1.5 s a turn")
        assert [command.turn_s for command in client.sent] == [0.5, 1.5, 4.0, 1.5]


async def test_no_step_to_an_update_in_inference_mode_and_no_second_step_before_the_first(
    make_app: MakeApp,
):
    client = fakes.FakeClient(confirms=False)
    async with rolling_out(make_app(client), SIZE) as pilot:
        await pilot.press("full_stop", "full_stop", "space")
        client.emit(PhaseChanged(phase="rolling_out"), PhaseChanged(phase="paused"))
        await sees(pilot, "Paused.")
        await pilot.press("t")
        client.emit(ModeChanged(mode="inference"))
        await sees(pilot, "INFERENCE")
        await pilot.press("u")
        assert client.sent == [Step(), Pause(), SetMode(mode="inference")]


async def test_nothing_can_be_asked_of_a_trainer_that_is_gone(make_app: MakeApp):
    client = fakes.FakeClient()
    async with rolling_out(make_app(client), SIZE) as pilot:
        await pilot.press("minus")
        await sees(pilot, "s a turn")
        client.die("The trainer died.")
        await sees(pilot, "NO TRAINER")
        await pilot.press("minus", "x", "full_stop", "u", "b", "B", "right_square_bracket")
        assert client.sent == [SetPace(turn_s=0.5)]
        assert "s a turn" not in shown(pilot)
