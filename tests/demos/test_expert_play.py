"""Episodes of scripted experts, and the files of them that ship."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from llamagym_tui.cli.demos import expert_episodes
from llamagym_tui.cli.main import app
from llamagym_tui.demos import files as demo_files
from llamagym_tui.demos.demonstration import Demonstration
from llamagym_tui.demos.faults import check
from llamagym_tui.errors import UsageError
from llamagym_tui.setup import catalog

SHIPPED = sorted(
    Path(str(path))
    for path in files("llamagym_tui.sft_data").iterdir()
    if path.name.endswith(".jsonl")
)


def clock() -> datetime:
    return datetime(2026, 1, 31, 12, tzinfo=UTC)


def played(spec: str, episodes: int, seed: int) -> list[Demonstration]:
    agent = catalog.find_agent(spec)()
    return list(
        expert_episodes(agent, catalog.agent_name(spec), episodes=episodes, seed=seed, clock=clock)
    )


def test_an_episode_has_the_agents_own_texts() -> None:
    (demo,) = played("blackjack", 1, 5)
    agent = catalog.find_agent("blackjack")()
    assert demo.messages[0] == {"role": "system", "content": agent.get_system_prompt()}
    replies = [message["content"] for message in demo.messages if message["role"] == "assistant"]
    assert replies == [agent.format_action(action) for action in demo.actions]
    assert (demo.source, demo.model, demo.seed) == ("expert", None, 5)
    assert (demo.length, demo.episode_return) == (len(demo.actions), sum(demo.rewards))


def test_an_agent_without_an_expert_is_refused_by_name() -> None:
    with pytest.raises(
        UsageError, match=r"GenericAgent has no expert to play CartPole-v1: define expert"
    ):
        played("CartPole-v1", 1, 0)


@pytest.mark.parametrize("most", [20, pytest.param(None, marks=pytest.mark.slow)])
@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_file_that_ships_is_what_its_command_gives(path: Path, most: int | None) -> None:
    """Of `most` episodes, or of all."""
    if needed := catalog.missing(catalog.built_in()[path.stem]):
        pytest.skip(needed)
    agent = catalog.find_agent(path.stem)()
    shipped = demo_files.read(path)
    assert check(path, agent) == []
    assert path.stat().st_size < 400_000
    assert f"| `{path.name}` | {len(shipped)} |" in (path.parent / "README.md").read_text(
        encoding="utf-8"
    )
    dated = [
        msgspec.structs.replace(demo, recorded_at="2026-01-31T12:00:00Z") for demo in shipped[:most]
    ]
    again = played(path.stem, len(dated), 5_000_000)
    assert again == dated


def test_generate_writes_a_file_that_check_accepts(tmp_path: Path) -> None:
    path = tmp_path / "made.jsonl"
    made = CliRunner().invoke(
        app, ["demos", "generate", "blackjack", "--episodes", "7", "-o", str(path)]
    )
    assert made.exit_code == 0, made.stderr
    assert made.stdout.startswith(f"{path}: 7 episodes, mean return ")
    assert [demo.seed for demo in demo_files.read(path)] == list(range(5_000_000, 5_000_007))
    assert (
        CliRunner().invoke(app, ["demos", "check", "--agent", "blackjack", str(path)]).exit_code
        == 0
    )


def test_without_a_place_a_persons_own_episodes_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMAGYM_TUI_DATA", str(tmp_path))
    (own,) = played("blackjack", 1, 1)
    demo_files.append(demo_files.default_path("blackjack"), own)
    CliRunner().invoke(app, ["demos", "generate", "blackjack", "--episodes", "2"])
    assert demo_files.read(demo_files.default_path("blackjack")) == [own]
    assert len(demo_files.read(demo_files.demos_dir() / "blackjack-expert.jsonl")) == 2
