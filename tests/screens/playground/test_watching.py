"""Watching by its keys, against a scripted trainer: which conversation, how fast, step by step."""

from __future__ import annotations

import pytest
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
from tests import fakes
from tests.screens.conftest import MakeApp
from tests.screens.steps import rolling_out, sees, until

SIZE = (120, 30)


@pytest.mark.parametrize(
    ("key", "command", "words"),
    [
        ("right_square_bracket", Watch(env=1), "environment 2"),
        ("left_square_bracket", Watch(env=127), "environment 128"),
        ("minus", SetPace(turn_s=0.5), "0.5 s a turn"),
        ("full_stop", Step(), "Paused. space resumes; . makes one turn, u one update."),
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
        await sees(pilot, "environment 1 → 3? · 0 → 0.5? s a turn")
        assert client.sent == [Watch(env=1), Watch(env=2), SetPace(turn_s=0.5)]
        client.emit(
            WatchChanged(env=1),
            WatchChanged(env=2),
            PaceChanged(turn_s=0.5),
        )
        await sees(pilot, "environment 3 · 0.5 s a turn")


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
        await sees(pilot, "NOT LEARNING")
        await pilot.press("u")
        assert client.sent == [Step(), Pause(), SetMode(mode="inference")]
