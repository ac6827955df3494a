"""Demonstrations as Minari's data sets, read by Minari itself, and back."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.agents.cart_pole import CartPoleAgent
from llamagym_tui.cli.main import app
from llamagym_tui.demos import files as demo_files
from llamagym_tui.demos.expert_play import expert_episodes
from llamagym_tui.demos.minari_sets import from_set, to_set
from llamagym_tui.errors import DemoFileError, UsageError
from llamagym_tui.game.agent_base import AgentBase

minari = pytest.importorskip("minari", reason="the extra minari is not installed")


@pytest.fixture(autouse=True)
def kept_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "sets"))


def clock() -> datetime:
    return datetime(2026, 11, 23, tzinfo=UTC)


def recorded(path: Path, agent: AgentBase, name: str, episodes: int = 5) -> Path:
    demo_files.write(
        path, list(expert_episodes(agent, name, episodes=episodes, seed=7, clock=clock))
    )
    return path


@pytest.mark.parametrize(
    ("agent", "name"), [(BlackjackAgent(), "blackjack"), (CartPoleAgent(), "cart_pole")]
)
def test_what_is_imported_again_is_what_was_exported(
    tmp_path: Path, agent: AgentBase, name: str
) -> None:
    file = recorded(tmp_path / "mine.jsonl", agent, name)
    assert to_set(file, f"{name}/mine-v0", agent, name) == 5
    assert list(from_set(f"{name}/mine-v0", agent, name, clock=clock)) == demo_files.read(file)


def test_minari_reads_the_environments_own_observations_and_can_make_it(tmp_path: Path) -> None:
    agent = BlackjackAgent()
    file = recorded(tmp_path / "mine.jsonl", agent, "blackjack")
    to_set(file, "blackjack/mine-v0", agent, "blackjack")
    data, demos = minari.load_dataset("blackjack/mine-v0"), demo_files.read(file)
    env = data.recover_environment()
    assert env.spec.id == "Blackjack-v1"
    for demo, episode in zip(demos, data.iterate_episodes(), strict=True):
        (total, card, ace), _ = env.reset(seed=demo.seed)
        assert [int(part[0]) for part in episode.observations] == [total, card, ace]
        assert len(episode.observations[0]) == demo.length + 1
        assert (episode.actions.tolist(), episode.rewards.tolist()) == (demo.actions, demo.rewards)
        assert (bool(episode.terminations[-1]), bool(episode.truncations[-1])) == (True, False)


@pytest.mark.parametrize("change", [{"seed": None}, {"rewards": [5.0]}, {"end": "truncated"}])
def test_an_episode_that_cannot_be_played_again_is_refused(
    tmp_path: Path, change: dict[str, object]
) -> None:
    agent = BlackjackAgent()
    demo = next(expert_episodes(agent, "blackjack", episodes=1, seed=7, clock=clock))
    changed = replace(demo, **change)
    demo_files.write(
        tmp_path / "mine.jsonl", [replace(changed, episode_return=sum(changed.rewards))]
    )
    with pytest.raises(
        DemoFileError, match=r"has no seed, or goes differently .* nothing was written"
    ):
        to_set(tmp_path / "mine.jsonl", "blackjack/mine-v0", agent, "blackjack")
    assert not minari.list_local_datasets()


def test_a_set_that_is_not_there_or_of_another_environment_is_refused(tmp_path: Path) -> None:
    agent = CartPoleAgent()
    with pytest.raises(UsageError, match=r"no data set blackjack/mine-v0 here"):
        list(from_set("blackjack/mine-v0", agent, "cart_pole", clock=clock))
    file = recorded(tmp_path / "mine.jsonl", BlackjackAgent(), "blackjack")
    to_set(file, "blackjack/mine-v0", BlackjackAgent(), "blackjack")
    with pytest.raises(
        UsageError, match=r"is of Blackjack-v1, and CartPoleAgent plays CartPole-v1"
    ):
        list(from_set("blackjack/mine-v0", agent, "cart_pole", clock=clock))


def test_the_commands_write_both_and_what_minari_cannot_keep_is_a_sentence(tmp_path: Path) -> None:
    run, file, again = CliRunner().invoke, tmp_path / "mine.jsonl", tmp_path / "again.jsonl"
    recorded(file, BlackjackAgent(), "blackjack")
    words = [
        "demos",
        "export",
        str(file),
        "--to",
        "minari",
        "--agent",
        "blackjack",
        "--output",
        "blackjack/mine-v0",
    ]
    assert run(app, words).stdout == "blackjack/mine-v0: 5 episodes\n"
    words = [
        "demos",
        "import",
        "minari",
        "blackjack/mine-v0",
        "--agent",
        "blackjack",
        "--output",
        str(again),
    ]
    assert run(app, words).stdout == f"{again}: 5 episodes\n"
    assert run(app, ["demos", "check", str(again), "--agent", "blackjack"]).exit_code == 0
    assert run(app, ["demos", "export", str(file), "--to", "minari"]).exit_code == 2
    with pytest.raises(
        DemoFileError, match=r"Minari does not take .* as blackjack/mine-v0"
    ):  # there is one
        to_set(file, "blackjack/mine-v0", BlackjackAgent(), "blackjack")


def test_a_name_without_a_version_and_a_file_of_another_agent_are_refused(tmp_path: Path) -> None:
    file = recorded(tmp_path / "mine.jsonl", BlackjackAgent(), "blackjack")
    with pytest.raises(
        UsageError, match=r"a version in their names, as blackjack/mine-v0; mine has none"
    ):
        to_set(file, "mine", BlackjackAgent(), "blackjack")
    with pytest.raises(
        UsageError, match=r"has episodes of blackjack, not of cart_pole; name that agent"
    ):
        to_set(file, "cart_pole/mine-v0", CartPoleAgent(), "cart_pole")
