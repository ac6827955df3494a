"""Past runs by their keys: listed, marked, compared, replayed, resumed, deleted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from filelock import FileLock
from msgspec import structs
from textual.pilot import Pilot

from llamagym_tui.app.app import LlamaGymApp
from llamagym_tui.protocol.events import AnyEvent, PhaseChanged, RunFinished
from llamagym_tui.runs.run_store import list_runs
from llamagym_tui.screens.past_runs.compare import CompareScreen
from llamagym_tui.screens.past_runs.home import HomeScreen, discard_run
from llamagym_tui.screens.past_runs.replay import ReplayScreen
from llamagym_tui.screens.past_runs.run_table import RunTable
from llamagym_tui.screens.playground.playground import PlaygroundScreen
from llamagym_tui.screens.widgets.chart import Plot
from llamagym_tui.settings import PPOConfig
from llamagym_tui.user_files import runs_dir
from tests import fakes
from tests.protocol.test_literal import NASTY, harmful
from tests.recorded_run import record
from tests.screens.conftest import MakeApp
from tests.screens.steps import (
    is_drawn,
    notices,
    reaches,
    rolling_out,
    sees,
    shown,
    stands_still,
    until,
)

SIZE = (100, 30)
END = RunFinished(episodes=0, env_steps=0, updates=0, elapsed_s=0.0)


def run(
    name: str,
    at_s: int,
    batches: int = 4,
    *more: AnyEvent,
    checkpoint: bool = False,
    **settings: object,
) -> Path:
    """A run in the user's folder, begun at a second of 2026."""
    events = [*fakes.opening_events(), *fakes.learning(batches), *more]
    folder = record(runs_dir() / name, events, checkpoint=checkpoint, **settings)
    os.utime(folder / "config.json", (1_767_355_200 + at_s, 1_767_355_200 + at_s))
    return folder


@pytest.fixture
def three_runs() -> None:
    run("early", 0, 4, END)
    run("middle", 60, 12, ppo=PPOConfig(lr=1e-3))
    run("late", 120, 8, checkpoint=True, episodes=1024)


def names(app: LlamaGymApp) -> list[str]:
    return [row.info.run_dir.name for row in app.screen.query_one(RunTable).shown]


async def runs_of(pilot: Pilot[None]) -> RunTable:
    """The table of runs with the focus, once it has read them all."""
    table = pilot.app.screen.query_one(RunTable)
    await until(
        pilot,
        lambda: table.shown and table.loaded,
        "runs that are read",
    )
    table.focus()
    await pilot.pause()
    return table


def home() -> LlamaGymApp:
    return LlamaGymApp(client_factory=lambda: fakes.FakeClient())


@pytest.mark.usefixtures("three_runs")
async def test_runs_are_listed_with_how_they_went_the_latest_first():
    app = home()
    async with app.run_test(size=SIZE) as pilot:
        await runs_of(pilot)
        await stands_still(pilot)
        assert names(app) == ["late", "middle", "early"]
        lines = [line for line in shown(pilot).splitlines() if "blackjack " in line]
        assert ["1,024" in lines[0], "1,536" in lines[1], "512" in lines[2]] == [True] * 3
        assert ["interrupted" in lines[0], "finished" in lines[2]] == [True, True]


async def test_a_start_that_came_to_nothing_is_not_listed():
    run("played", 0, 4)
    run("kept", 60, 0, checkpoint=True)
    run("unbegun", 120, 0)
    app = home()
    async with app.run_test(size=SIZE) as pilot:
        await runs_of(pilot)
        assert names(app) == ["kept", "played"]


@pytest.mark.usefixtures("three_runs")
async def test_a_run_is_deleted_once_confirmed():
    with (
        FileLock(runs_dir() / "middle" / ".lock"),
        pytest.raises(OSError, match="another process has the run"),
    ):
        discard_run(
            runs_dir() / "middle"
        )  # before the list looks, which calls a locked run running
    app = home()
    async with app.run_test(size=SIZE) as pilot:
        await runs_of(pilot)
        await pilot.press("down", "x")
        await sees(pilot, "delete this run?")
        await pilot.press("enter")
        await reaches(pilot, HomeScreen)
        assert (runs_dir() / "middle").exists(), "enter keeps it"
        await pilot.press("x")
        await sees(pilot, "delete this run?")
        await pilot.press("y")
        await until(
            pilot, lambda: isinstance(app.screen, HomeScreen) and names(app) == ["late", "early"]
        )
    assert sorted(path.name for path in runs_dir().iterdir()) == ["early", "late"]


async def test_runs_of_different_games_are_not_compared():
    run("earlier", 0)
    run("later", 60, 12, env={"sab": True})
    app = home()
    async with app.run_test(size=SIZE) as pilot:
        await runs_of(pilot)
        await pilot.press("space", "down", "c")
        await until(pilot, lambda: notices(app), "a notice")
        [notice] = notices(app)
        assert "blackjack are different games; mark runs of one." in notice
        assert isinstance(app.screen, HomeScreen)


@pytest.mark.usefixtures("three_runs")
async def test_two_marked_runs_are_compared():
    app = home()
    async with app.run_test(size=SIZE) as pilot:
        await runs_of(pilot)
        await pilot.press("c")
        assert isinstance(app.screen, HomeScreen)
        await pilot.press("space", "down", "c")
        await until(pilot, lambda: isinstance(app.screen, CompareScreen) and is_drawn(app.screen))
        drawing = app.screen.query_one(Plot)._drawing
        assert drawing is not None
        assert [curve.points[-1][0] for curve in drawing.curves] == [1536.0, 1024.0]
        assert [level.y for level in drawing.levels] == [-0.0466, -0.396]
        await pilot.press("down")
        front = app.screen.query_one(Plot)._drawing
        assert front is not None
        assert front.curves[-1].points[-1][0] == 1536.0, "the chosen run is drawn last"
        await sees(pilot, "Settings that differ:")
        screen = " ".join(shown(pilot).split())
        assert "ppo.lr A 0.0005 B 0.001" in screen
        assert "n_envs" not in screen
        await pilot.press("q")
        assert isinstance(app.screen, HomeScreen)


@pytest.mark.usefixtures("three_runs")
async def test_a_run_is_replayed_and_left():
    app = home()
    async with app.run_test(size=SIZE) as pilot:
        await runs_of(pilot)
        await pilot.press("enter")
        await reaches(pilot, ReplayScreen)
        await sees(pilot, "REPLAY · LEARNING  Blackjack")
        await pilot.press("q")
        await reaches(pilot, HomeScreen)
        assert app.run_state is None


@pytest.mark.usefixtures("three_runs")
async def test_only_a_run_with_a_checkpoint_is_resumed():
    resumed = structs.replace(fakes.run_started(), episodes=1024, updates=8)
    client = fakes.FakeClient([resumed, PhaseChanged(phase="rolling_out")])
    app = LlamaGymApp(client_factory=lambda: client)
    async with app.run_test(size=SIZE) as pilot:
        await runs_of(pilot)
        await pilot.press("down", "r")
        await pilot.pause()
        assert client.started is None
        await pilot.press("up", "r")
        await until(pilot, lambda: client.started is not None)
        assert client.started is not None
        assert (client.started.resume, Path(client.started.run_dir).name) == (True, "late")
        assert client.started.episodes is None
        await reaches(pilot, PlaygroundScreen)
        await sees(pilot, "episode 1,024")
        assert app.run_state is not None
        assert app.run_state.returns.episodes == 1024
        await pilot.press("q")
        await sees(pilot, "leave the run?")
        await pilot.press("y")
        await reaches(pilot, HomeScreen)
        assert app.run_state is None, "it goes back to the list that it was resumed from"
        await runs_of(pilot)


async def test_what_if_begins_a_run_that_knows_its_parent_with_other_settings_and_another_prompt():
    (run("late", 120, 8, seed=3) / "update-4").mkdir()
    run("early", 0)
    client = fakes.FakeClient([])
    app = LlamaGymApp(client_factory=lambda: client)
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: len(app.screen.query_one(RunTable).shown) == 2)
        await pilot.press("tab", "tab", "tab", "b")
        await sees(pilot, "begin after update (4)")
        await pilot.press("tab", *"ppo.lr=0.5", "tab", *"Never", "space", *"hit", "enter")
        await until(pilot, lambda: client.started is not None)
        config = client.started
        assert (config.resume, config.seed, config.ppo.lr, config.system_prompt) == (
            True,
            3,
            0.5,
            "Never hit",
        )
        assert config.origin == "branch of late at update 4"
        assert Path(config.run_dir).parent == runs_dir().absolute()
    (row,) = [each for each in list_runs() if each.config.parent]
    assert row.standing == "can be resumed"


async def test_a_run_that_cannot_be_read_says_why():
    folder = run("broken", 0)
    (folder / "events.jsonl").write_text("nonsense\n")
    app = home()
    async with app.run_test(size=SIZE) as pilot:
        await sees(pilot, "unreadable")
        await sees(pilot, "Line 1 of")
        await runs_of(pilot)
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, HomeScreen)


async def test_names_of_files_and_models_are_literal():
    nasty = " ".join(NASTY[:12])
    agent = f"{nasty}/a[$a]\x1b[2J日本語.py"
    run("nasty", 0, agent=agent, model=nasty, checkpoint=True)
    run("other", 60, agent=agent, model=nasty)
    app = home()
    async with app.run_test(size=(120, 34)) as pilot:
        await sees(pilot, "512")
        await stands_still(pilot)
        assert harmful(shown(pilot)) == []
        await runs_of(pilot)
        await sees(pilot, "a[$a]␛[2J")
        await stands_still(pilot)
        await pilot.press("space", "down", "space", "c")
        await until(pilot, lambda: isinstance(app.screen, CompareScreen) and is_drawn(app.screen))
        assert harmful(shown(pilot)) == []


async def test_beside_a_run_that_is_open_past_runs_are_looked_at_and_compared_alone(
    three_runs: None, make_app: MakeApp
):
    client = fakes.FakeClient()
    app = make_app(client)
    async with rolling_out(app, SIZE) as pilot:
        await pilot.press("o")
        await runs_of(pilot)
        await pilot.press("enter", "r")
        assert isinstance(app.screen, HomeScreen)
        await pilot.press("space", "down", "c")
        await reaches(pilot, CompareScreen)
        client.emit(fakes.counted([1.0], 77))
        await pilot.press("escape")
        await reaches(pilot, HomeScreen)
        await pilot.press("escape")
        await reaches(pilot, PlaygroundScreen)
        await sees(pilot, "episode 77")
        assert app.run_state is not None
        assert app.run_state.live


async def test_a_runs_own_agent_file_is_not_executed_before_it_is_trusted(tmp_path: Path) -> None:
    evil = tmp_path / "evil.py"
    evil.write_text("raise RuntimeError('executed')", encoding="utf-8")
    run("foreign", 0, 12, checkpoint=True, agent=str(evil))
    app = home()
    async with app.run_test(size=SIZE) as pilot:
        await runs_of(pilot)
        await pilot.press("r")
        await until(pilot, lambda: notices(app), "a notice")
        assert "evil.py" in notices(app)[0]
        assert "--trust-agent" in notices(app)[0]
        assert app.config is None
