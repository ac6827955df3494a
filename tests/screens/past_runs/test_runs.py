"""Past runs by their keys: listed, sorted, marked, compared, replayed, resumed."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from filelock import FileLock
from msgspec import structs
from textual.events import MouseScrollUp
from textual.pilot import Pilot
from typer.testing import CliRunner

from llamagym_tui.app.app import LlamaGymApp
from llamagym_tui.cli.main import app as cli
from llamagym_tui.config import PPOConfig, RunConfig
from llamagym_tui.protocol.events import AnyEvent, PhaseChanged, RunFinished
from llamagym_tui.returns import ReturnSeries
from llamagym_tui.run_store import RunInfo, list_runs
from llamagym_tui.screens.past_runs import run_list
from llamagym_tui.screens.past_runs.compare import CompareScreen, SideList
from llamagym_tui.screens.past_runs.curves import Curves
from llamagym_tui.screens.past_runs.home import HomeScreen
from llamagym_tui.screens.past_runs.replay import ReplayScreen
from llamagym_tui.screens.past_runs.run_list import RunList
from llamagym_tui.screens.past_runs.run_table import RunRow
from llamagym_tui.screens.past_runs.runs import RunsScreen, discard_run
from llamagym_tui.screens.playground.playground import PlaygroundScreen
from llamagym_tui.screens.widgets.chart_cells import scale_of
from llamagym_tui.screens.widgets.table_list import TableHeading
from llamagym_tui.state.run_summary import RunSummary
from llamagym_tui.user_files import runs_dir
from tests import fakes
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
from tests.screens.widgets.test_literal import NASTY, harmful

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
    return [row.info.run_dir.name for row in app.screen.query_one(RunList).rows]


async def runs_screen(pilot: Pilot[None]) -> RunList:
    """The screen of all runs, once it has read them."""
    await all_read(pilot)
    await pilot.press("l")
    await reaches(pilot, RunsScreen)
    await all_read(pilot)
    return pilot.app.screen.query_one(RunList)


async def compares_two(pilot: Pilot[None]) -> None:
    """Mark the run under the cursor and the next one, and wait until their comparison is drawn."""
    await pilot.press("space", "down", "c")
    await until(
        pilot, lambda: isinstance(pilot.app.screen, CompareScreen) and is_drawn(pilot.app.screen)
    )


async def all_read(pilot: Pilot[None]) -> None:
    """Wait until the list has read what it lists: a run that it has not read yet cannot be compared."""

    def rows_are_read() -> bool:
        rows = pilot.app.screen.query_one(RunList).rows
        return bool(rows) and all(row.summary is not None or row.fault for row in rows)

    await until(pilot, rows_are_read, "runs that are read")


def home() -> LlamaGymApp:
    return LlamaGymApp(client_factory=lambda: fakes.FakeClient())


@pytest.mark.usefixtures("three_runs")
async def test_runs_are_listed_with_how_they_went_the_latest_first():
    app = home()
    async with app.run_test(size=SIZE) as pilot:
        await runs_screen(pilot)
        await stands_still(pilot)
        assert names(app) == ["late", "middle", "early"]
        lines = [line for line in shown(pilot).splitlines() if "blackjack " in line]
        assert ["1,024" in lines[0], "1,536" in lines[1], "512" in lines[2]] == [True] * 3
        assert ["interrupted" in lines[0], "finished" in lines[2]] == [True, True]


@pytest.mark.usefixtures("three_runs")
async def test_a_run_gets_a_name_and_a_note_which_stay():
    async with home().run_test(size=SIZE) as pilot:
        runs = await runs_screen(pilot)
        await pilot.press("n", *"kl off", "escape")
        assert runs.chosen is not None
        assert runs.chosen.info.about == "", "escape leaves it as it was"
        await pilot.press("n", *"KL off: held till 800", "enter")
        await until(pilot, lambda: runs.chosen is not None and runs.chosen.info.name == "KL off")
        await sees(pilot, "KL off: held till 800 · blackjack · bundled · seed 1")
        assert [line.split()[3:6] for line in shown(pilot).splitlines() if "1,024" in line][:1] == [
            ["blackjack:", "KL", "off"]
        ]
        await pilot.press("n", *["backspace"] * 22, "enter")
        await until(pilot, lambda: runs.chosen is not None and runs.chosen.info.about == "")
    assert (runs_dir() / "late" / "about.txt").read_bytes() == b""


def test_what_a_run_has_had_at_least_is_no_luck_of_a_window(tmp_path: Path) -> None:
    # Hands of a policy that earns −0.05, some of whose windows earn more than any policy does.
    returns = np.random.default_rng(3).choice([-1.0, 0.0, 1.0], 20_000, p=[0.48, 0.09, 0.43])
    series = ReturnSeries().add(map(float, returns))
    config = RunConfig(agent="blackjack", run_dir=str(tmp_path))
    info = RunInfo(
        run_dir=tmp_path, config=config, started_at=datetime.now(UTC), has_checkpoint=False
    )
    row = RunRow(info=info, summary=RunSummary(returns=series))
    assert max(point.mean_return for point in row.curve) > 0
    assert row.at_least is not None
    assert -0.1 < row.at_least < -0.04
    few = RunSummary(returns=ReturnSeries().add([1.0, 1.0, 1.0]))
    assert RunRow(info=info, summary=few).at_least is None


async def test_runs_have_tags_and_the_best_of_a_game_is_marked_and_sorted_to_the_top():
    for name, peak, end, about in (("low", 0.0, 0.2, ""), ("peak", 1.0, -1.0, "a: b #long")):
        batches = [[peak] * 100] * 20 + [[end] * 100] * 20
        played = [fakes.counted(batch, 100 * at) for at, batch in enumerate(batches, 1)]
        record(runs_dir() / name, [*fakes.opening_events(), *played])
        (runs_dir() / name / "about.txt").write_text(about)
    app = home()
    async with app.run_test(size=(140, 30)) as pilot:
        runs = await runs_screen(pilot)
        await sees(pilot, "★ +1.000")
        assert shown(pilot).count("★") == 1
        (line,) = [line for line in shown(pilot).splitlines() if "★" in line]
        assert "#long" in line
        runs.sort("return")
        assert names(app) == ["low", "peak"]
        runs.sort("at least")
        assert names(app) == ["peak", "low"]
        await pilot.press("slash", *"#LONG")
        await until(pilot, lambda: names(app) == ["peak"])
    listed = CliRunner().invoke(cli, ["runs"]).output
    assert [line.endswith("a: b #long") for line in listed.splitlines()[:2]].count(True) == 1


@pytest.mark.usefixtures("three_runs")
async def test_runs_are_filtered_by_a_part_of_a_name_marks_stay_and_escape_shows_all():
    app = home()
    async with app.run_test(size=SIZE) as pilot:
        runs = await runs_screen(pilot)
        await pilot.press("space", "slash", *"MIDD")
        await until(pilot, lambda: names(app) == ["middle"])
        await pilot.press("tab", "space", "c")
        await until(
            pilot, lambda: not isinstance(app.screen, CompareScreen) and len(runs.marked) == 2
        )
        await pilot.press("escape")
        await until(pilot, lambda: names(app) == ["late", "middle", "early"])
        await all_read(pilot)
        await pilot.press("c")
        await reaches(pilot, CompareScreen)


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
        await runs_screen(pilot)
        await pilot.press("down", "x")
        await sees(pilot, "delete this run?")
        await pilot.press("enter")
        await reaches(pilot, RunsScreen)
        assert (runs_dir() / "middle").exists(), "enter keeps it"
        await pilot.press("x")
        await sees(pilot, "delete this run?")
        await pilot.press("y")
        await until(
            pilot, lambda: isinstance(app.screen, RunsScreen) and names(app) == ["late", "early"]
        )
    assert sorted(path.name for path in runs_dir().iterdir()) == ["early", "late"]


@pytest.mark.usefixtures("three_runs")
async def test_keys_and_clicks_sort():
    app = home()
    async with app.run_test(size=SIZE) as pilot:
        runs = await runs_screen(pilot)
        runs.sort("episodes")
        assert names(app) == ["middle", "late", "early"]
        await pilot.press("S")
        assert names(app) == ["early", "late", "middle"]
        await pilot.press("s")
        assert runs.sorted_by == "return"
        await pilot.click(TableHeading, offset=(5, 0))
        await until(
            pilot, lambda: (runs.sorted_by, names(app)) == ("when", ["late", "middle", "early"])
        )


@pytest.mark.usefixtures("three_runs")
async def test_two_marked_runs_are_compared():
    app = home()
    async with app.run_test(size=SIZE) as pilot:
        await runs_screen(pilot)
        await pilot.press("c")
        assert isinstance(app.screen, RunsScreen)
        await compares_two(pilot)
        await sees(pilot, "Settings that differ:")
        screen = " ".join(shown(pilot).split())
        assert "ppo.lr A 0.0005 B 0.001" in screen
        assert "n_envs" not in screen
        await pilot.press("q")
        assert isinstance(app.screen, RunsScreen)


@pytest.mark.parametrize("other", [{"agent": "cart_pole"}, {"env": {"sab": True}}])
async def test_runs_of_different_games_are_not_compared(other: dict[str, Any]):
    run("earlier", 0)
    run("later", 60, 12, **other)
    app = home()
    async with app.run_test(size=SIZE) as pilot:
        await runs_screen(pilot)
        await pilot.press("space", "down", "c")
        await until(pilot, lambda: notices(app), "a notice")
        [notice] = notices(app)
        assert "blackjack are different games; mark runs of one." in notice
        assert isinstance(app.screen, RunsScreen)


async def test_a_branch_and_its_parent_are_in_one_chart_from_where_it_left_it_with_the_baselines():
    run("late", 120, 8)
    began = structs.replace(fakes.run_started(), episodes=512, updates=1)
    record(runs_dir() / "branch", [began, fakes.counted([1.0] * 128, 640)], parent="/runs/late@1")
    app = home()
    async with app.run_test(size=SIZE) as pilot:
        await runs_screen(pilot)
        await pilot.press("space", "down", "c")
        await until(pilot, lambda: isinstance(app.screen, CompareScreen) and is_drawn(app.screen))
        await sees(pilot, "optimal −0.047")
        drawing = app.screen.query_one(Curves)._drawing
        curves = {len(curve.points): curve.points for curve in drawing.curves}
        assert sorted(points[0][0] >= 512 for points in curves.values()) == [False, True]
        assert drawing.marks == [512]
        assert [level.y for level in drawing.levels] == [-0.396, -0.0466]


async def test_a_side_stands_for_all_seeds_of_its_run_with_their_mean_and_its_error():
    for seed, mean in ((1, 0.0), (2, 0.5), (3, 1.0)):
        rolled = [fakes.counted([mean] * 64, 64), fakes.evaluation(mean, return_stderr=0.0)]
        record(runs_dir() / f"seed{seed}", [*fakes.opening_events(), *rolled], seed=seed)
        os.utime(runs_dir() / f"seed{seed}" / "config.json", (1_767_355_200 + seed,) * 2)
    other = [*fakes.opening_events(), fakes.counted([-1.0] * 64, 64)]
    record(runs_dir() / "other", other, seed=1, ppo=PPOConfig(lr=1e-3))
    app = home()
    async with app.run_test(size=(140, 30)) as pilot:
        await runs_screen(pilot)
        await pilot.press("space", "down", "c")
        await sees(pilot, "at the end")
        # 'other' and seed 3 are the two latest.
        await pilot.press("s")
        await sees(pilot, "3 seeds: 1, 2, 3; ")
        # Of 0, 1/2 and 1 the variance is 1/4: its error is 1/2 over the root of 3.
        await until(pilot, lambda: shown(pilot).count("+0.50 ± 0.29") == 2, "end and evaluations")
        await sees(pilot, "192 episodes")
        assert "Settings that differ: ppo.lr" in " ".join(shown(pilot).split())
        drawing = app.screen.query_one(Curves)._drawing
        heights = sorted({round(curve.points[-1][1], 3) for curve in drawing.curves})
        assert heights == [-1.0, 0.211, 0.5, 0.789]
        await pilot.press("s")
        await sees(pilot, "seed3")


async def test_runs_that_differ_in_seed_only_are_one_mean():
    for seed in (1, 2, 3):
        run(f"seed{seed}", seed, 12, seed=seed)
    async with home().run_test(size=SIZE) as pilot:
        await runs_screen(pilot)
        await pilot.press("a", "c", "s")
        await sees(pilot, "3 seeds: 1, 2, 3; ± standard error")
        assert len(pilot.app.screen.query_one(SideList).rows) == 1


@pytest.mark.usefixtures("three_runs")
async def test_curves_of_any_number_of_runs_are_read_off_zoomed_and_smoothed():
    async with home().run_test(size=SIZE) as pilot:
        await runs_screen(pilot)
        await pilot.press("a", "c")
        await until(pilot, lambda: is_drawn(pilot.app.screen))
        curves, sides = pilot.app.screen.query_one(Curves), pilot.app.screen.query_one(SideList)
        late, middle, early = sides.rows
        assert curves.at is None
        await pilot.press("left")
        # Where the cursor stands is the last column's; only the longest run has an episode there.
        assert 1500 < (curves.at or 0) < 1536
        assert [curves.value(side) == "—" for side in (late, middle, early)] == [True, False, True]
        await sees(pilot, f"at episode {curves.at:,.0f}")
        await pilot.press("plus", "plus", "plus")
        left, right = curves._shown
        assert right - left == pytest.approx(1536 / 8)
        assert left <= curves.at <= right
        assert min(x for curve in curves._drawing.curves for x, _ in curve.points) >= left
        # The chart goes along with a cursor that leaves it.
        await pilot.press(*["shift+left"] * 12)
        assert curves._shown[0] <= curves.at <= curves._shown[1] < right
        await pilot.press("minus", "minus", "minus")
        assert curves._shown is None
        rough = curves._sides[1][1]
        await pilot.press("right_square_bracket")
        assert len(rough) > len(curves._sides[1][1])
        await sees(pilot, "mean of 612 episodes")


@pytest.mark.usefixtures("three_runs")
async def test_the_mouse_reads_values_off_and_its_wheel_zooms_where_it_points():
    async with home().run_test(size=SIZE) as pilot:
        await runs_screen(pilot)
        await pilot.press("a", "c")
        await until(pilot, lambda: is_drawn(pilot.app.screen))
        curves = pilot.app.screen.query_one(Curves)
        inside = scale_of(curves._drawing, *curves.content_size)[0].columns
        begin = curves.content_size.width - inside + 1
        await pilot.hover(Curves, offset=(begin + inside // 4, 3))
        assert curves.at == pytest.approx(1536 / 4, rel=0.05)
        at = curves.at
        curves.post_message(
            MouseScrollUp(curves, begin + inside // 4, 3, 0, 0, 0, False, False, False)
        )
        await until(pilot, lambda: curves._shown is not None)
        assert curves._shown == pytest.approx((at - 768 / 4, at + 768 * 3 / 4), abs=20)


async def test_returns_that_are_compared_have_their_unit():
    evaluated = fakes.evaluation(-0.063, return_stderr=0.03)
    for at_s, name in enumerate(("earlier", "later")):
        run(
            name,
            at_s,
            12,
            msgspec.structs.replace(fakes.run_started(), return_unit="chips a hand"),
            evaluated,
        )
    app = home()
    async with app.run_test(size=SIZE) as pilot:
        await runs_screen(pilot)
        await pilot.press("space", "down", "c")
        await sees(pilot, "−0.063 ± 0.059")
        await sees(pilot, "return of blackjack in chips a hand")


async def test_an_evaluation_is_told_with_its_confidence_interval():
    evaluated = fakes.evaluation(-0.063, return_stderr=0.03)
    run("earlier", 0, 12)
    run("later", 60, 8, evaluated)
    app = home()
    async with app.run_test(size=SIZE) as pilot:
        await runs_screen(pilot)
        await sees(pilot, "evaluated −0.063 ± 0.059")
        await compares_two(pilot)
        assert "−0.063 ± 0.059" in shown(pilot)


@pytest.mark.usefixtures("three_runs")
@pytest.mark.parametrize(
    "theme", ["ansi-dark", pytest.param("textual-light", marks=pytest.mark.slow)]
)
async def test_two_runs_are_compared_in_the_terminals_own_colours(theme: str):
    app = home()
    async with app.run_test(size=SIZE) as pilot:
        app.theme = theme
        await runs_screen(pilot)
        await compares_two(pilot)
        await sees(pilot, "Settings that differ:")


@pytest.mark.parametrize(("size", "more"), [((60, 20), True), (SIZE, False)])
async def test_a_comparison_says_where_it_goes_on_below(size: tuple[int, int], more: bool):
    run("earlier", 0)
    run("later", 60, 12, ppo=PPOConfig(lr=1e-3, epochs=3, clip_range=0.1, gamma=0.9), n_envs=64)
    app = home()
    async with app.run_test(size=SIZE) as pilot:
        await runs_screen(pilot)
        await compares_two(pilot)
        await pilot.resize_terminal(*size)
        await until(pilot, lambda: ("pgdn More below" in shown(pilot)) is more)
        facts = app.screen.query_one("#compare-facts")
        await pilot.press("pagedown")
        await until(pilot, lambda: facts.scroll_y == more)
        await pilot.press("pageup")
        await until(pilot, lambda: facts.scroll_y == 0)


@pytest.mark.usefixtures("three_runs")
async def test_question_mark_explains_the_keys_of_runs_and_of_a_comparison():
    app = home()
    async with app.run_test(size=SIZE) as pilot:
        await runs_screen(pilot)
        await pilot.press("question_mark")
        await sees(pilot, "Mark a run, to compare it.")
        await pilot.press("escape")
        await compares_two(pilot)
        await pilot.press("question_mark")
        await sees(pilot, "Back to the runs.")


@pytest.mark.usefixtures("three_runs")
async def test_all_that_are_listed_are_marked_by_one_key_and_by_another_press_none():
    app = home()
    async with app.run_test(size=SIZE) as pilot:
        runs = await runs_screen(pilot)
        await pilot.press("down", "space", "a")
        assert [Path(key).name for key in runs.marked] == ["middle", "late", "early"]
        await pilot.press("a")
        assert runs.marked == []


@pytest.mark.usefixtures("three_runs")
async def test_a_run_is_replayed_and_left():
    app = home()
    async with app.run_test(size=SIZE) as pilot:
        await runs_screen(pilot)
        await pilot.press("enter")
        await reaches(pilot, ReplayScreen)
        await sees(pilot, "REPLAY · train  Blackjack")
        await pilot.press("q")
        await reaches(pilot, RunsScreen)
        assert app.run_state is None
        await pilot.press("q")
        await reaches(pilot, HomeScreen)


@pytest.mark.usefixtures("three_runs")
async def test_only_a_run_with_a_checkpoint_is_resumed():
    resumed = structs.replace(fakes.run_started(), episodes=1024, updates=8)
    client = fakes.FakeClient([resumed, PhaseChanged(phase="rolling_out")])
    app = LlamaGymApp(client_factory=lambda: client)
    async with app.run_test(size=SIZE) as pilot:
        await runs_screen(pilot)
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
        await reaches(pilot, RunsScreen)
        assert app.run_state is None, "it goes back to the list that it was resumed from"
        await all_read(pilot)


@pytest.mark.usefixtures("three_runs")
async def test_a_run_that_another_process_has_is_not_resumed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("llamagym_tui.run_store.is_held", lambda folder: folder.name == "late")
    client = fakes.FakeClient([])
    app = LlamaGymApp(client_factory=lambda: client)
    async with app.run_test(size=SIZE) as pilot:
        await runs_screen(pilot)
        chosen = app.screen.query_one(RunList).chosen
        assert chosen is not None
        assert (chosen.info.run_dir.name, chosen.info.has_checkpoint) == ("late", True)
        assert app.screen.query_one(RunList).check_action("request", ("resume",)) is None
        await pilot.press("r")
        await pilot.pause()
        assert client.started is None


async def test_what_if_begins_a_run_that_knows_its_parent_with_other_settings_and_another_prompt():
    (run("late", 120, 8, seed=3) / "update-4").mkdir()
    run("early", 0)
    client = fakes.FakeClient([])
    app = LlamaGymApp(client_factory=lambda: client)
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: len(app.screen.query_one(RunList).rows) == 2)
        await pilot.press("tab", "tab", "b")
        await sees(pilot, "after update (4)")
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


async def test_what_cannot_be_a_setting_of_a_branch_is_refused_in_words_and_stays_to_be_corrected():
    (run("late", 120) / "update-4").mkdir()
    app = LlamaGymApp(client_factory=lambda: fakes.FakeClient([]))
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: len(app.screen.query_one(RunList).rows) == 1)
        await pilot.press("tab", "tab", "b")
        await sees(pilot, "after update (4)")
        await pilot.press("tab", *"lr=fast", "enter")
        await until(pilot, lambda: any("lr" in text for text in notices(app)))
        assert len(list_runs()) == 1
        assert "lr=fast" in shown(pilot)
        await pilot.press("shift+tab", *"foo=1", "enter")
        await until(pilot, lambda: "After update takes 4, not 'foo=1'." in notices(app))


async def test_a_run_that_has_kept_no_checkpoint_has_no_what_if():
    run("late", 120)
    app = LlamaGymApp(client_factory=lambda: fakes.FakeClient([]))
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: len(app.screen.query_one(RunList).rows) == 1)
        assert app.screen.query_one(RunList).check_action("request", ("branch",)) is None


async def test_a_branch_is_marked_in_the_list_and_its_parent_named():
    run("branch", 120, parent="/runs/late@4")
    app = LlamaGymApp(client_factory=lambda: fakes.FakeClient([]))
    async with app.run_test(size=SIZE) as pilot:
        await sees(pilot, "↳ ")
        await pilot.press("l")
        await sees(pilot, "branch of late at update 4")


async def test_a_run_that_cannot_be_read_says_why():
    folder = run("broken", 0)
    (folder / "events.jsonl").write_text("nonsense\n")
    app = home()
    async with app.run_test(size=SIZE) as pilot:
        await sees(pilot, "unreadable")
        await pilot.press("l")
        await sees(pilot, "Line 1 of")
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, RunsScreen)


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
        await pilot.press("l")
        await sees(pilot, "a[$a]␛[2J")
        await stands_still(pilot)
        await pilot.press("space", "down", "space", "c")
        await until(pilot, lambda: isinstance(app.screen, CompareScreen) and is_drawn(app.screen))
        assert harmful(shown(pilot)) == []


async def test_without_runs_the_screens_say_so():
    app = home()
    async with app.run_test(size=SIZE) as pilot:
        await sees(pilot, "None yet")
        await pilot.press("l")
        await sees(
            pilot, "There are no runs in data/runs yet: enter on an agent at home begins one"
        )
        await pilot.press("space", "c", "s", "r", "enter", "escape")
        await reaches(pilot, HomeScreen)


async def test_beside_a_run_that_is_open_past_runs_are_looked_at_and_compared_alone(
    three_runs: None, make_app: MakeApp
):
    client = fakes.FakeClient()
    app = make_app(client)
    async with rolling_out(app, SIZE) as pilot:
        await pilot.press("o")
        await sees(pilot, "to look at and compare while a run is open")
        await sees(pilot, "1,536")
        await pilot.press("enter", "r")
        await pilot.click(RunList, offset=(5, 1))
        assert isinstance(app.screen, RunsScreen)
        await pilot.press("space", "down", "c")
        await reaches(pilot, CompareScreen)
        client.emit(fakes.counted([1.0], 77))
        await pilot.press("escape")
        await reaches(pilot, RunsScreen)
        await pilot.press("escape")
        await reaches(pilot, PlaygroundScreen)
        await sees(pilot, "episode 77")
        assert app.run_state is not None
        assert app.run_state.live


async def test_a_run_that_another_process_has_is_listed_as_running_until_it_ends():
    folder = run("late", 120, 8, checkpoint=True)
    app = home()
    with FileLock(folder / ".lock"):
        async with app.run_test(size=SIZE) as pilot:
            await sees(pilot, "1,024")
            await pilot.press("l")
            await sees(pilot, "· running")
            assert "interrupted" not in shown(pilot)
    assert [run.standing for run in list_runs()] == ["can be resumed"]


@pytest.mark.parametrize(("key", "agrees"), [("y", True), ("n", False), ("enter", False)])
async def test_a_runs_own_agent_file_is_executed_after_a_question_only(
    tmp_path: Path, key: str, agrees: bool
) -> None:
    evil = tmp_path / "evil.py"
    evil.write_text("raise RuntimeError('executed')", encoding="utf-8")
    run("foreign", 0, 12, checkpoint=True, agent=str(evil))
    app = home()
    async with app.run_test(size=SIZE) as pilot:
        await sees(pilot, "1,536")
        await pilot.press("l")
        await reaches(pilot, RunsScreen)
        await sees(pilot, "1,536")
        await pilot.press("r")
        await sees(pilot, "execute this code?")
        assert "evil.py" in shown(pilot)
        assert "SHA-256" in shown(pilot)
        await pilot.press(key)
        await until(
            pilot, lambda: isinstance(app.screen, PlaygroundScreen if agrees else RunsScreen)
        )
        assert (app.config is not None) == agrees


def test_many_runs_are_read_between_two_paintings_and_a_slow_one_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = iter(range(10_000))
    monkeypatch.setattr(run_list, "read_row", lambda row: row)
    monkeypatch.setattr(
        run_list, "time", SimpleNamespace(monotonic=lambda: next(seconds) / 100)
    )  # ten milliseconds a run
    rows = [object() for _ in range(300)]
    assert len(run_list._read_some(rows)) == 20  # type: ignore[arg-type]
    monkeypatch.setattr(run_list, "PAINT_S", 0.0)
    assert run_list._read_some(rows) == rows[:1]  # type: ignore[arg-type,comparison-overlap]
