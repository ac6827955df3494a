"""Episodes of scripted experts, the files of them that ship, and their exports."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from llamagym_tui.cli.main import app
from llamagym_tui.demos import export
from llamagym_tui.demos import files as demo_files
from llamagym_tui.demos.demonstration import Demonstration
from llamagym_tui.demos.expert_play import expert_episodes
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
    assert demo_files.check(path, agent) == []
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
        app, ["demos", "generate", "blackjack", "--episodes", "7", "--out", str(path)]
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


def test_pairs_have_the_conversation_up_to_each_reply(tmp_path: Path) -> None:
    path = tmp_path / "made.jsonl"
    demo = next(demo for demo in played("blackjack", 50, 0) if demo.length == 2)
    demo_files.write(path, [demo])
    pairs = tmp_path / "made.pairs.jsonl"
    assert (
        CliRunner().invoke(app, ["demos", "export", str(path), "--to", "pairs"]).stdout
        == f"{pairs}: 2 lines\n"
    )
    lines = [json.loads(line) for line in pairs.read_text(encoding="utf-8").splitlines()]
    assert [line["prompt"] + line["completion"] for line in lines] == [
        demo.messages[:3],
        demo.messages,
    ]


@pytest.mark.slow
def test_a_parquet_table_has_a_row_an_episode_and_a_column_a_field(tmp_path: Path) -> None:
    from datasets import Dataset

    path = tmp_path / "made.jsonl"
    demo_files.write(path, found := played("blackjack", 5, 0))
    assert export.to_parquet(path, tmp_path / "table.parquet") == 5
    table = Dataset.from_parquet(str(tmp_path / "table.parquet"), cache_dir=str(tmp_path / "cache"))
    assert table.column_names == [field.name for field in msgspec.structs.fields(Demonstration)]
    assert table["messages"][:] == [demo.messages for demo in found]
