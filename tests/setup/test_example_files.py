"""The agent files of docs/examples: OpenEnv against a server that is started here, GEM in the process."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from llamagym_tui import run_store
from llamagym_tui.errors import EnvError, UsageError
from llamagym_tui.game.environment import agent_env
from llamagym_tui.game.observed import observed, reply_of
from llamagym_tui.protocol.event_log import apart
from llamagym_tui.protocol.events import EpisodesCounted
from llamagym_tui.setup import catalog

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
OPENENV, GEM = EXAMPLES / "openenv_agent.py", EXAMPLES / "gem_agent.py"
BOARD = "Here is the current board layout: \n{}\nEnter your move."
"""As GEM's games end an observation."""


@pytest.fixture(autouse=True)
def _unregistered() -> Iterator[None]:
    """Each load of a file registers its environment again, which Gymnasium warns of."""
    yield
    for name in ("OpenEnv-v0", "Gem-v0"):
        gymnasium.registry.pop(name, None)


@pytest.mark.parametrize(
    ("board", "moves"),
    [
        ("__  1\n 3  2\n", ["up", "left"]),
        (" 1  2\n 3 __\n", ["down", "right"]),
        (" 1  2  3\n 4 __  5\n 6  7  8\n", ["up", "down", "left", "right"]),
        (" 1  2  3\n 4  5  6\n 7  8 __\n", ["down", "right"]),
        (" 1  2 __\n 4  5  6\n 7  8  3\n", ["up", "right"]),
    ],
)
def test_the_moves_of_gems_puzzle_are_those_that_its_board_allows(
    board: str, moves: list[str]
) -> None:
    agent = catalog.find_agent(str(GEM))()
    text, actions = observed(agent, "You are playing …", {"suffix": BOARD.format(board)})
    assert (text, list(actions or ())) == (BOARD.format(board), moves)
    assert [agent.read(reply_of(agent, move)).action for move in moves] == moves


def test_the_legal_moves_of_an_openenv_server_are_the_actions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catalog, "missing", lambda agent: "")
    agent = catalog.find_agent(str(OPENENV))()
    seen = {"fen": "8/8", "legal_moves": ["e2e4", "d2d4"], "metadata": {}}
    assert observed(agent, seen, {}) == (
        "fen: 8/8\nlegal_moves: ['e2e4', 'd2d4']",
        ("e2e4", "d2d4"),
    )
    assert agent.read(reply_of(agent, "d2d4")).action == "d2d4"


def test_without_openenv_its_example_names_what_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catalog, "find_spec", lambda name: None)
    with pytest.raises(
        UsageError, match=r"needs the package openenv.*pip install 'llamagym-tui\[openenv\]'"
    ):
        catalog.find_agent(str(OPENENV))


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """Where a corridor is served, for eight sessions: four environments, and as many of an evaluation."""
    pytest.importorskip("openenv")
    port, log = free_port(), tmp_path / "server.log"
    command = [sys.executable, str(Path(__file__).with_name("served_corridor.py")), str(port), "8"]
    with (
        log.open("w", encoding="utf-8") as output,
        subprocess.Popen(command, stderr=output) as process,
    ):
        try:
            url, until = f"http://127.0.0.1:{port}", time.monotonic() + 150
            while not answers(url):
                assert process.poll() is None, log.read_text(encoding="utf-8")
                assert time.monotonic() < until
                time.sleep(0.2)
            yield url
        finally:
            process.kill()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


def trained(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "llamagym_tui",
        "train",
        str(path),
        "--episodes",
        "16",
        "--envs",
        "4",
        *options,
    ]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=300)


def played(path: Path) -> tuple[dict[str, Any], list[tuple[float, int]]]:
    """The figures of 16 episodes and an update, and each episode's return and length."""
    done = trained(
        path,
        "--set",
        "ppo.batch_size=16",
        "--set",
        "ppo.mini_batch_size=16",
        "--final-episodes",
        "8",
        "--json",
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    counted = [
        apart(event)
        for event in run_store.read_events(Path(figures["run_dir"]))
        if isinstance(event, EpisodesCounted) and event.mode == "train"
    ]
    return figures, [
        pair for event in counted for pair in zip(event.returns, event.lengths, strict=True)
    ]


@pytest.fixture
def _data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMAGYM_TUI_DATA", str(tmp_path / "data"))


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.usefixtures("_data")
def test_openenvs_example_plays_and_learns_on_a_server(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENENV_URL", server)
    figures, episodes = played(OPENENV)
    assert (figures["episodes"], figures["dropped"], len(episodes)) == (16, 0, 16)
    assert figures["updates"] >= 1
    assert all(total == -length and 1 <= length <= 12 for total, length in episodes)
    assert figures["env_steps"] == sum(length for _, length in episodes)
    assert -12 <= figures["evaluation"]["mean_return"] <= -1
    assert figures["evaluation"]["dropped"] == 0


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("_data")
def test_openenvs_example_names_a_server_that_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openenv")
    port = free_port()
    monkeypatch.setenv("OPENENV_URL", f"http://127.0.0.1:{port}")
    done = trained(OPENENV)
    assert done.returncode != 0
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("llamagym-tui:")]
    assert f"cannot be made: Failed to connect to ws://127.0.0.1:{port}/ws: " in line
    assert "; start the server, or set OPENENV_URL to where it is (" in line


def test_gems_example_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gem", None)
    agent = catalog.find_agent(str(GEM))()
    with pytest.raises(
        EnvError, match=r"; pip install 'llamagym-tui\[gem\]' && pip install --no-deps gem-llm \("
    ):
        agent_env(agent)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("_data")
def test_gems_example_plays_and_learns() -> None:
    pytest.importorskip("gem")
    figures, episodes = played(GEM)
    assert (figures["episodes"], figures["dropped"], len(episodes)) == (16, 0, 16)
    assert figures["updates"] >= 1
    # A puzzle that is solved is worth 1; after ten moves each tile in its place, and the gap, is worth a quarter.
    assert all(
        total == 1 if length < 10 else total in (0, 0.25, 0.5, 0.75, 1)
        for total, length in episodes
    )
    assert max(length for _, length in episodes) == 10
