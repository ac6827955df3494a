"""The table of estimators: medians of the seeds, and ranks within a world, worked by hand."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks import estimators
from benchmarks.estimators import agreement, course, from_middle, last_figures, table
from llamagym_tui.config import RunConfig
from llamagym_tui.errors import UsageError


def record(world: str, learner: str, seed: int, sampled: float, **figures: float) -> dict[str, Any]:
    known = {
        "turns": 1000,
        "updates": 10,
        "first_batch": -0.5,
        "idle_share": 0.25,
        "trained_s": 120.4,
    }
    known |= {"action_information": 0.1, "action_entropy": 0.5}
    return {
        "world": world,
        "learner": learner,
        "seed": seed,
        "sampled": sampled,
        **known,
        **figures,
    }


def test_a_row_has_medians_of_its_seeds_and_what_is_compared_where_something_is() -> None:
    records = [record("lake", "grpo", seed, 0.25 * seed, turns=1000 * seed) for seed in (1, 2, 3)]
    records.append(record("lake", "ppo", 1, 0.9))
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table(records).splitlines()
    ]
    assert rows[2:] == [
        ["lake", "`grpo`", "-0.5000", "0.5000 (0.2500 to 0.7500)", "120", "2,000", "10", "0.100", "0.500", "0.25", "3"],
        ["lake", "`ppo`", "-0.5000", "0.9000", "120", "1,000", "10", "0.100", "0.500", "—", "1"],
    ]  # fmt: skip


def test_equal_values_share_the_middle_of_their_ranks() -> None:
    # ranks 1.5, 4, 1.5, 3 less 2.5
    assert from_middle([7.0, 9.0, 7.0, 8.0]) == [-1.0, 1.5, -1.0, 0.5]


def test_a_figure_goes_with_returns_by_its_ranks_in_each_world() -> None:
    # In one world the order is the same, in the other the reverse of it but for one swap: 3 runs each.
    records = [
        record("lake", name, 1, each, action_information=each * 100, action_entropy=0.3)
        for name, each in zip(("ppo", "grpo", "rloo"), (0.1, 0.2, 0.9), strict=True)
    ]
    records += [
        record("cards", name, 1, -each, action_information=information, action_entropy=0.3)
        for name, each, information in zip(
            ("ppo", "grpo", "rloo"), (50, 60, 70), (0.1, 0.3, 0.2), strict=True
        )
    ]
    # lake: (-1, 0, 1) twice, so 2 / 2; cards: (-1, 1, 0) with (1, 0, -1), so -1 / 2; both: (2 - 1) / 4
    information, entropy = agreement(records).splitlines()
    assert information == "action_information and return, 6 runs: +0.25 (lake +1.00, cards -0.50)"
    assert entropy == "action_entropy and return, 6 runs: — (lake —, cards —)"


def test_in_the_course_of_a_run_a_figure_goes_with_the_returns_of_its_batches(
    tmp_path: Path,
) -> None:
    figures = {"ppo": [0.1, 0.2, 0.3], "grpo": [0.1, 0.3, 0.2], "rebn": [0.5, 0.5, 0.5]}
    for learner, information in figures.items():
        (tmp_path / f"lake-{learner}-1").mkdir()
        stats = [
            {"mean_return": at, "action_information": each, "action_entropy": -at}
            for at, each in enumerate(information)
        ]
        stats.insert(0, {**stats[0], "mean_return": None})  # no episode ended in the first batch
        lines = [json.dumps({"type": "UpdateFinished", "stats": each}) for each in stats]
        (tmp_path / f"lake-{learner}-1" / "events.jsonl").write_text("\n".join(lines))
    records = [record("lake", learner, 1, 0.0) for learner in figures]
    information, entropy = course(tmp_path, records).splitlines()
    assert information.endswith("updates, 2 runs: median +0.75 (+0.50 to +1.00)")
    assert entropy.endswith("updates, 3 runs: median -1.00 (-1.00 to -1.00)")


def test_what_is_kept_of_a_run_is_its_first_return_and_the_mean_of_its_last_updates() -> None:
    stats = [
        {"mean_return": at, "action_information": at, "action_entropy": 1, "idle_share": 0}
        for at in range(7)
    ]
    found = last_figures(stats)
    assert (found["first_batch"], found["action_information"]) == (0, 4.0)


def test_the_same_command_goes_on_and_other_settings_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trained: list[tuple[Any, ...]] = []

    def train(run_dir: Path, common: dict[str, Any], where: dict[str, Any]) -> dict[str, Any]:
        trained.append((where["seed"], where["world"], where["learner"]))
        return record("", "", 0, 0.5) | where

    monkeypatch.setattr(estimators, "trained", train)
    monkeypatch.setattr(estimators, "course", lambda folder, records: "")
    words = ["--folder", str(tmp_path), "--worlds", "kitchen", "--seeds", "2"]
    both = [*words, "--learners", "ppo", "--learners", "rebn"]

    def run(*more: str) -> Any:
        app = estimators.typer.Typer()
        app.command()(estimators.main)
        return CliRunner().invoke(app, [*both, *more])

    assert run().exit_code == 0
    expected = [(seed, "kitchen", name) for seed in (1, 2) for name in ("ppo", "rebn")]
    assert trained == expected
    again = run()
    assert trained == expected, "all of it is known"
    assert "| kitchen | `rebn` |" in again.output
    assert run("--minutes", "3").exit_code == 2
    assert run("--episodes", "20").exit_code == 2
    kept = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert [each.pop("episodes") for each in kept] == [500] * 4
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(each) + "\n" for each in kept))
    assert run("--only-table").exit_code == 0, "of before it could be set"


def test_a_world_is_trained_and_evaluated_as_its_row_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[Any] = []
    updates = 1

    def play(config: RunConfig, report: Any, *_: Any, **__: Any) -> Any:
        seen.append((config.agent, config.env))
        report.figures = lambda: {"env_steps": 9, "updates": updates, "elapsed_s": 12.0}
        return SimpleNamespace(
            error=None, session=SimpleNamespace(active_run=SimpleNamespace(limit_reached=True))
        )

    def evaluated(*words: object) -> dict[str, float]:
        seen.append((words[1], words[words.index("--episodes") + 1]))
        return {"mean_return": 0.5, "return_stderr": 0.1}

    monkeypatch.setattr(estimators, "play_session", play)
    monkeypatch.setattr(estimators, "summary", evaluated)
    monkeypatch.setattr(estimators, "updates_of", lambda run_dir: [])
    monkeypatch.setattr(estimators, "last_figures", lambda stats: {})
    common = {"model": "bundled", "minutes": 0.1, "settings": [], "episodes": 7}
    where = {"world": "coin_collector", "learner": "grpo", "seed": 1}
    estimators.trained(tmp_path / "run", common, where)
    assert seen == [("tw-coin_collector", {"level": 5}), ("tw-coin_collector", 7)]
    updates = 0
    with pytest.raises(UsageError, match=r"in 0\.1 minutes"):
        estimators.trained(tmp_path / "run", common, where)
