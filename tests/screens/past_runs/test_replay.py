"""A replay by its keys and its slider; no trainer is there, and nothing is asked of one."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from textual.pilot import Pilot

from llamagym_tui.app.app import LlamaGymApp
from llamagym_tui.protocol.events import ModeChanged, SessionFailed
from llamagym_tui.screens.past_runs.replay import ReplayScreen, TimeSlider
from llamagym_tui.screens.widgets.key_bar import KeyBar
from tests import fakes
from tests.recorded_run import record
from tests.screens.steps import notices, sees, until

SIZE = (80, 24)


def no_client():
    raise AssertionError("a trainer was started")


@pytest.fixture
def app(tmp_path: Path) -> LlamaGymApp:
    return replay_of(record(tmp_path / "run", stamped(list(fakes.demo_run(batches=20)))))


def stamped(events: list) -> list:
    """Events at 0, 0.5, 1 … seconds."""
    return [msgspec.structs.replace(event, at_s=0.5 * index) for index, event in enumerate(events)]


def replay_of(run_dir: Path) -> LlamaGymApp:
    return LlamaGymApp(replay=run_dir, client_factory=no_client)


async def paused(pilot: Pilot[None]) -> ReplayScreen:
    """The replay, read and holding still at its beginning."""
    screen = pilot.app.screen
    assert isinstance(screen, ReplayScreen)
    await until(pilot, lambda: screen.player.recording.complete)
    if screen.player.playing:
        await pilot.press("space")
    await pilot.press("home")
    return screen


async def test_a_replay_plays_by_itself(app: LlamaGymApp):
    async with app.run_test(size=SIZE) as pilot:
        await sees(pilot, "REPLAY · LEARNING")
        screen = app.screen
        assert isinstance(screen, ReplayScreen)
        await pilot.press("plus", "plus", "plus", "plus", "plus", "plus", "plus")
        await sees(pilot, "■ 128×")
        await sees(pilot, "episode 2,560")
        assert screen.player.at_end


async def test_keys_move_time(app: LlamaGymApp):
    async with app.run_test(size=SIZE) as pilot:
        screen = await paused(pilot)
        duration_s = screen.player.recording.duration_s
        for key, at_s in [
            ("right", 5.0),
            ("right", 10.0),
            ("left", 5.0),
            ("end", duration_s),
            ("home", 0.0),
        ]:
            await pilot.press(key)
            await until(pilot, lambda at_s=at_s: screen.player.at_s == pytest.approx(at_s), key)  # type: ignore[misc]
        assert not screen.player.playing


async def test_the_slider_goes_where_it_is_clicked(app: LlamaGymApp):
    async with app.run_test(size=SIZE) as pilot:
        screen = await paused(pilot)
        slider = screen.query_one(TimeSlider)
        start, width = slider.bar
        await pilot.click(slider, offset=(1 + start + width - 1, 0))
        await until(pilot, lambda: screen.player.at_s == screen.player.recording.duration_s)
        await pilot.click(slider, offset=(1 + start, 0))
        await until(pilot, lambda: screen.player.at_s == 0.0)


async def test_keys_that_need_a_trainer_are_dim_and_do_nothing(app: LlamaGymApp):
    async with app.run_test(size=(240, 40)) as pilot:
        await paused(pilot)
        await pilot.press("end")
        await sees(pilot, "2,574 ")
        bar = app.screen.query_one(KeyBar)
        able = {
            "Jump",
            "Play/pause",
            "Speed",
            "Back",
            "All keys",
            "Play",
            "Metrics",
            "Map",
        }
        await until(
            pilot,
            lambda: {key.binding.description for key in bar.keys if key.enabled} == able,
            "keys that do something",
        )
        await pilot.press("t", "p", "r", "s", "e", "c", "ctrl+r")
        await pilot.pause()
        assert isinstance(app.screen, ReplayScreen)
        assert app.run_state is not None
        assert not app.run_state.pending.commands


async def test_a_failed_run_is_told_as_what_was_and_leaves_a_clean_exit(tmp_path: Path):
    events = [
        *fakes.opening_events(),
        ModeChanged(mode="inference"),
        SessionFailed(message="The disk was full."),
    ]
    app = replay_of(record(tmp_path / "run", events))
    async with app.run_test(size=SIZE) as pilot:
        await sees(pilot, "The disk was full.")
        await pilot.press("q")
    assert app.return_code == 0


async def test_a_line_that_is_no_event_ends_the_recording(tmp_path: Path):
    run_dir = record(tmp_path / "run", fakes.opening_events())
    with (run_dir / "events.jsonl").open("a") as file:
        file.write("nonsense\n")
    async with replay_of(run_dir).run_test(size=SIZE) as pilot:
        await until(pilot, lambda: any("Line " in text for text in notices(pilot.app)), "the fault")
        await sees(pilot, "REPLAY · LEARNING  Blackjack")


@pytest.mark.parametrize("key", ["d", "h"])
async def test_a_replay_executes_no_code_that_its_folder_names(tmp_path: Path, key: str) -> None:
    evil = tmp_path / "evil.py"
    evil.write_text(f"open({str(tmp_path / 'executed')!r}, 'w')", encoding="utf-8")
    app = replay_of(
        record(tmp_path / "run", stamped(list(fakes.demo_run(batches=2))), agent=str(evil))
    )
    async with app.run_test(size=(120, 34)) as pilot:
        await paused(pilot)
        await pilot.press(key)
        await until(pilot, lambda: any("executes no code" in each for each in notices(app)))
        assert not (tmp_path / "executed").exists()
