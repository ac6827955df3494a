"""Demonstrations in the app: looked at, sorted out, edited, and trained on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace as replace_fields
from textual.pilot import Pilot
from textual.widgets import Static

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.app.app import LlamaGymApp
from llamagym_tui.demos import files as demo_files
from llamagym_tui.game.chat import assistant, system, user
from llamagym_tui.protocol.commands import CancelWarmStart, WarmStart
from llamagym_tui.protocol.events import (
    PhaseChanged,
    WarmStartEvaluated,
    WarmStartFinished,
    WarmStartProgressed,
)
from llamagym_tui.screens.demos.demonstrations import DemonstrationsScreen
from llamagym_tui.screens.demos.warm_start import WarmStartDialog
from llamagym_tui.screens.playground.playground import PlaygroundScreen
from llamagym_tui.settings import WarmStartStats
from tests import fakes
from tests.demos.test_files import a_demo
from tests.protocol.test_literal import NASTY, harmful
from tests.screens.conftest import MakeApp
from tests.screens.steps import notices, reaches, rolling_out, sees, shown, stands_still, until

SIZE = (100, 30)
AGENT = BlackjackAgent()


@pytest.fixture
def path() -> Path:
    """Three episodes: won by a person, lost by the model, won by the expert."""
    file = demo_files.default_path("blackjack")
    demo_files.append(file, a_demo(seed=1))
    demo_files.append(
        file,
        a_demo(seed=2, rewards=[0.0, -1.0], episode_return=-1.0, source="model", model="bundled"),
    )
    demo_files.append(file, a_demo(seed=3, source="expert"))
    return file


def seeds(path: Path) -> list[int | None]:
    return [demo.seed for demo in demo_files.read(path)]


@asynccontextmanager
async def opened(app: LlamaGymApp) -> AsyncIterator[Pilot[None]]:
    """The app with the demonstrations of its run on the screen."""
    async with rolling_out(app, SIZE) as pilot:
        await pilot.press("d")
        await reaches(pilot, DemonstrationsScreen)
        await sees(pilot, "episodes")
        await stands_still(pilot)
        yield pilot


async def test_episodes_are_listed_counted_and_shown_in_full(make_app: MakeApp, path: Path):
    async with opened(make_app()) as pilot:
        await sees(pilot, "DEMONSTRATIONS  Blackjack · 3 episodes")
        screen = shown(pilot)
        assert "3 episodes · mean return +0.333" in screen
        assert "you       {" in screen
        await pilot.press("down")
        await sees(pilot, "line 2 · model (bundled)")
        assert "return    ▼ −1 · terminated" in shown(pilot)
        await pilot.press("escape")
        await reaches(pilot, PlaygroundScreen)


async def test_a_text_replaces_an_empty_list(make_app: MakeApp):
    async with opened(make_app()) as pilot:
        await sees(pilot, "There is none yet")
        await pilot.press("x")


async def test_a_full_disk_is_reported_and_changes_nothing(
    make_app: MakeApp, path: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    async with opened(make_app()) as pilot:
        monkeypatch.setattr("os.fsync", full)
        await pilot.press("x")
        await sees(pilot, "delete this episode?")
        await pilot.press("y")
        await sees(pilot, "No space left on device")
        await sees(pilot, "3 episodes")
    assert seeds(path) == [1, 2, 3]


async def test_a_faulty_line_is_marked_and_its_fault_shown(make_app: MakeApp, path: Path):
    with open(path, "ab") as file:
        file.write(b'{"nonsense": "\x1b[2J[bold]"}\n')
    async with opened(make_app()) as pilot:
        await sees(pilot, "✗ 1 faulty")
        await pilot.press("end")
        await sees(pilot, "This is no demonstration")
        assert "\x1b" not in shown(pilot)
        await pilot.press("x")
        await sees(pilot, "delete this episode?")
        await pilot.press("y")
        await sees(pilot, "Blackjack · 3 episodes")


async def test_a_warm_start_is_requested_and_its_progress_shown(make_app: MakeApp, path: Path):
    client = fakes.FakeClient()
    async with rolling_out(make_app(client), SIZE) as pilot:
        await pilot.press("f")
        await reaches(pilot, WarmStartDialog)
        await sees(pilot, "recorded by you: 3 episodes, mean return +0.333")
        await sees(pilot, "shipped with the agent: 500 episodes")
        await pilot.press("enter")
        await sees(pilot, "3 episodes may be learnt by heart")
        assert client.sent == []
        await pilot.press("enter")
        await reaches(pilot, WarmStartDialog)
        assert client.sent == []
        await pilot.press("enter", "y")
        await sees(pilot, "requested")
        assert client.sent == [WarmStart(sft_data=str(path), episodes=300)]
        client.emit(PhaseChanged(phase="warm_starting", detail="loading TRL"))
        client.emit(
            WarmStartProgressed(step=1, steps=4, loss=2.5),
            WarmStartProgressed(step=2, steps=4, loss=0.5),
        )
        await sees(pilot, "step 2 of 4")
        assert "loss 2.50 → 0.500" in shown(pilot)
        await pilot.press("enter")
        assert len(client.sent) == 1, "one at a time"
        await pilot.press("escape")
        await sees(pilot, "A warm start is under way")
        await pilot.press("f")
        await sees(pilot, " 2 of 4")
        await pilot.press("x", "x")
        assert client.sent[1:] == [CancelWarmStart()]
        client.emit(
            WarmStartFinished(
                method="sft",
                stats=WarmStartStats(
                    demonstrations=3,
                    tokens=30,
                    steps=2,
                    first_loss=2.5,
                    last_loss=0.5,
                    elapsed_s=3.0,
                    cancelled=True,
                ),
            )
        )
        await sees(pilot, "3 demonstrations, cancelled after 2 steps and 3 s; loss 2.500 → 0.500")


async def test_a_warm_start_trains_on_a_persons_corrections_and_only_where_there_are_some(
    make_app: MakeApp, path: Path
):
    client = fakes.FakeClient()
    async with rolling_out(make_app(client), SIZE) as pilot:
        await pilot.press("f")
        await sees(pilot, "imitate every reply (SFT)")
        assert "DPO" not in shown(pilot), "there is nothing to train on"
        await pilot.press("escape")
        demo_files.append(
            path,
            a_demo(
                seed=4, source="correction", model="bundled", replaced_replies={0: '{"action": 0}'}
            ),
        )
        await pilot.press("f")
        await sees(pilot, "recorded by you: 4 episodes")
        await sees(pilot, "recorded by you: 1 preference pair")
        await pilot.press("down", "enter")
        await sees(pilot, "method     prefer a person's reply over the model's (DPO)")
        await sees(pilot, "pairs      1")
        assert "learnt by heart" not in shown(pilot), "the doubts are those of an imitation"
        await pilot.press("y")
        await until(pilot, lambda: client.sent)
        assert client.sent == [WarmStart(sft_data=str(path), method="dpo", episodes=300)]


def finished() -> WarmStartFinished:
    return WarmStartFinished(
        method="sft",
        stats=WarmStartStats(
            demonstrations=1,
            tokens=9,
            steps=60,
            first_loss=2.5,
            last_loss=0.5,
            elapsed_s=3.0,
            cancelled=False,
        ),
    )


async def test_what_a_warm_start_has_changed_is_shown_everywhere_with_the_key_that_takes_it_back(
    make_app: MakeApp, path: Path
):
    client = fakes.FakeClient()
    async with rolling_out(make_app(client), SIZE) as pilot:
        worse = replace_fields(fakes.evaluation(-0.6), greedy=False, parse_failure_rate=0.16)
        client.emit(finished(), WarmStartEvaluated(before=fakes.evaluation(-0.4), after=worse))
        line = (
            "replies without an action 0.0% → 16.0%, mean return −0.400 ± 0.098 → −0.600 ± 0.098, "
            "over 300 sampled episodes each."
        )
        await until(
            pilot,
            lambda: notices(pilot.app) == [f"Warm start: {line} ctrl+r rolls it back."],
            "the toast",
        )
        await pilot.press("f")
        dialog = pilot.app.screen.query_one("#warm-start-state", Static)
        await until(pilot, lambda: line[:-1] in str(dialog.content), line)


async def test_a_faulty_file_is_never_trained_on(make_app: MakeApp, path: Path):
    demo_files.append(path, a_demo(seed=9, actions=[1, 1]))
    client = fakes.FakeClient()
    async with rolling_out(make_app(client), SIZE) as pilot:
        await pilot.press("f")
        await sees(pilot, "recorded by you: refused")
        assert "line 4: Turn 2: the reply says 0" in " ".join(shown(pilot).split())
        await pilot.press("up", "enter")
        await sees(pilot, "episodes   500")
        assert client.sent == []
        await pilot.press("y")
        await until(pilot, lambda: client.sent, "the other file")
        assert [type(command) for command in client.sent] == [WarmStart]


async def test_recorded_text_steers_no_terminal(make_app: MakeApp):
    path = demo_files.default_path("blackjack")
    nasty = [text for text in NASTY if text != "\ud800"]
    for seed, text in enumerate(nasty):
        messages = [system(text), user(text), assistant(f'{text}{{"action": 1}}')]
        demo_files.append(
            path,
            a_demo(
                messages=messages, source=text or "x", model=text, seed=seed, length=1, actions=[1]
            ),
        )
    async with opened(make_app()) as pilot:
        await sees(pilot, f"{len(nasty)} faulty")
        for _ in nasty:
            assert harmful(shown(pilot)) == []
            await pilot.press("down")
