"""What keys do in a browser session: nothing that opens files or starts programs; while watching nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from filelock import FileLock

from llamagym_tui import user_files
from llamagym_tui.app.app import LlamaGymApp
from llamagym_tui.errors import UsageError
from llamagym_tui.runs.run_store import EVENTS_FILE, LOCK_FILE
from llamagym_tui.screens.past_runs.replay import ReplayScreen
from llamagym_tui.screens.widgets.key_bar import KeyBar
from llamagym_tui.setup import catalog, trust
from llamagym_tui.state.history import ReplayPlayer
from tests import fakes
from tests.recorded_run import record
from tests.screens.conftest import MakeApp
from tests.screens.past_runs.test_replay import replay_of, stamped
from tests.screens.steps import notices, sees, until

SIZE = (100, 30)
AGENT = "from llamagym_tui.agent import Agent\n"
KEYS = [
    *"abcdefghijklmnoprstuvwxyABCFKLSUX.[]",
    "space",
    "enter",
    "plus",
    "minus",
    "home",
    "end",
    "f1",
    "f2",
    "f5",
]
"""Of the playground, a list or a replay; `q` would leave."""


@pytest.fixture
def playing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(user_files.BROWSER, "play blackjack")


@pytest.fixture
def watching(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of a run that is watched."""
    folder = record(tmp_path / "run", stamped(list(fakes.demo_run(batches=3))), checkpoint=True)
    monkeypatch.setenv(user_files.BROWSER, "watch")
    return folder


async def test_no_picture_is_saved_where_the_server_is(
    make_app: MakeApp, playing: None, tmp_path: Path
):
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await sees(pilot, "Prompt")
        await pilot.press("Y")
        assert notices(app) == [user_files.REFUSED]
        await app.run_action("app.save_screen(True)")  # the film of the policy map
        await pilot.pause()
        assert notices(app) == [user_files.REFUSED] * 2
    assert not [*tmp_path.glob("*.svg")]


@pytest.mark.parametrize("key", ["h", "d", "o", "Y"])
async def test_who_watches_is_refused_with_a_sentence_and_offered_no_such_key(
    watching: Path, key: str
):
    app = replay_of(watching)
    async with app.run_test(size=SIZE) as pilot:
        await sees(pilot, "REPLAY")
        assert key not in {shown.binding.key for shown in app.screen.query_one(KeyBar).keys}
        await pilot.press(key)
        assert notices(app) == ["Not available to visitors who only watch a run."]
        assert isinstance(app.screen, ReplayScreen)


async def test_no_key_of_who_watches_changes_anything_on_disk(watching: Path, tmp_path: Path):
    def on_disk() -> dict[Path, tuple[int, bytes]]:
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}

    before = on_disk()
    app = replay_of(watching)
    async with app.run_test(size=SIZE) as pilot:
        await sees(pilot, "REPLAY")
        for key in KEYS:
            await pilot.press(key)
            if not isinstance(app.screen, ReplayScreen):
                await pilot.press(*KEYS[:20])
                if not isinstance(app.screen, ReplayScreen):  # where `escape` would leave the app
                    await pilot.press("escape")
                while not isinstance(app.screen, ReplayScreen):
                    app.pop_screen()
                    await pilot.pause()
    assert on_disk() == before


def test_while_watching_no_file_can_be_written(watching: Path, tmp_path: Path):
    place = tmp_path / "new"
    for change in (
        lambda: user_files.replace_file(place, b""),
        lambda: user_files.growing_file(place),
        lambda: user_files.make_folder(place),
        lambda: user_files.draft_folder(tmp_path),
        lambda: user_files.link_folder(watching, place),
        lambda: user_files.discard(watching / EVENTS_FILE),
    ):
        with pytest.raises(PermissionError, match="Not available in a browser session"):
            change()
    assert not place.exists()
    assert (watching / EVENTS_FILE).exists()


def test_only_the_agent_that_was_named_may_bring_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    mine, other = tmp_path / "mine.py", tmp_path / "other.py"
    body = "class Mine(Agent):\n env_id = 'Blackjack-v1'\n def get_system_prompt(self): return ''\n"
    for file in (mine, other):
        file.write_text(AGENT + body + " def format_observation(self, observation): return ''\n")
    trust.remember_typed(str(other))
    monkeypatch.setenv(user_files.BROWSER, f"play {mine}")
    assert catalog.find_agent(str(mine)).__name__ == "Mine"
    assert catalog.find_agent("blackjack").env_id == "Blackjack-v1"
    for spec in (str(other), "other.py", f"{mine}:Mine", "os:Maze-v0", "game.z8"):
        with pytest.raises(UsageError, match="Not available in a browser session"):
            catalog.find_agent(spec)
    for spec in (str(other), "os:Maze-v0"):
        with pytest.raises(UsageError, match="Not available in a browser session"):
            trust.require_trusted(spec)


async def test_a_run_that_goes_on_is_shown_where_it_is_and_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("llamagym_tui.screens.past_runs.replay.FOLLOW_S", 0.05)
    monkeypatch.setattr(ReplayPlayer, "tick", lambda player: None)  # time does not pass by itself
    events = stamped(list(fakes.demo_run(batches=4)))
    whole = record(tmp_path / "whole", events)
    lines = (whole / EVENTS_FILE).read_bytes().splitlines(keepends=True)
    run = record(tmp_path / "run", events[:20])
    with FileLock(run / LOCK_FILE):
        app = LlamaGymApp(replay=run)
        async with app.run_test(size=SIZE) as pilot:
            await sees(pilot, "goes on")
            screen = app.screen
            assert isinstance(screen, ReplayScreen)
            await until(pilot, lambda: screen.player.at_s == screen.player.recording.duration_s > 0)
            assert not screen.player.at_end
            had = screen.player.recording.events
            with (run / EVENTS_FILE).open("ab") as log:
                log.writelines(lines[had:])
            await until(pilot, lambda: screen.player.recording.events == len(lines))
    assert had < len(lines)
