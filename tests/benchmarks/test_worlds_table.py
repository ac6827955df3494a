"""The table of worlds: medians of the seeds, processor minutes, and going on after an interruption."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import worlds
from benchmarks.timing import alternate, ratios
from benchmarks.worlds import ROWS, Records, Way, table, train_row
from llamagym_tui.setup import catalog


def test_a_row_has_medians_over_the_seeds_and_their_extremes(tmp_path: Path) -> None:
    records = Records(tmp_path / "results.jsonl")
    records.add({"world": "taxi", "player": "reference", "random": -0.2, "optimal": 12.34})
    for seed, greedy in enumerate([0.9, 0.55, 0.4]):
        found = {"world": "taxi", "player": "model", "seed": seed, "minutes": 2, "turns": 20_000}
        found |= {"greedy": greedy, "sampled": 0.25, "first_batch": -seed, "batches": None}
        records.add(found)
    row = table(["taxi"], records, [2]).splitlines()[-1]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    greedy = "0.5500 (0.4000 to 0.9000)"
    assert cells[:6] == ["taxi", "2", "-0.2000", "-1.000", "—", greedy]
    assert cells[6:] == ["0.2500", "12.3", "20,000", "3"]


def test_a_torn_line_is_left_out_and_the_next_one_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    Records(file).add({"world": "w", "minutes": 2})
    with file.open("a") as results:
        results.write('{"world": "w", "min')
    Records(file).add({"world": "w", "minutes": 5})
    assert [each["minutes"] for each in Records(file).of(world="w")] == [2, 5]


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Commands of a table whose runs play nothing and have half a core."""
    asked: list[str] = []

    def summary(command: str, agent: str, *words: object) -> tuple[dict[str, Any], float]:
        options = list(words)
        minutes = options[options.index("--minutes") + 1]
        run_dir = options[options.index("--run-dir") + 1]
        asked.append(f"{'resume' if '--resume' in options else command} {minutes:g}")
        run_dir.mkdir(parents=True, exist_ok=True)
        (run_dir / "config.json").touch()
        counts = {"env_steps": 100, "episodes": 10, "updates": 1}
        return {"elapsed_s": 60 * minutes, **counts}, 0.5

    played = {"greedy": {"mean_return": 0.0}, "sampled": {"mean_return": 0.0}}
    monkeypatch.setattr(worlds, "with_share", summary)
    monkeypatch.setattr(worlds, "evaluated", lambda *given: played)
    monkeypatch.setattr(worlds, "updates_of", lambda run_dir: [])
    return asked


def test_minutes_are_those_of_a_core_and_a_table_goes_on_where_it_was(
    tmp_path: Path, commands: list[str]
) -> None:
    file = tmp_path / "results.jsonl"
    train_row(Records(file), "taxi", 1, [2], Way(tmp_path))
    # Half of 2, 1, 0.5, 0.25 and 0.125 minutes leaves 3.75 of 120 s, too few for another command.
    assert commands == ["train 2", "resume 3", "resume 3.5", "resume 3.75", "resume 3.875"]
    train_row(Records(file), "taxi", 1, [2], Way(tmp_path))
    assert len(commands) == 5
    with pytest.raises(SystemExit, match="name another --folder"):
        train_row(Records(file), "taxi", 1, [2], Way(tmp_path, settings=["ppo.lr=1"]))


def test_each_row_has_a_world() -> None:
    for row in ROWS.values():
        if not row.agent.startswith("tw-"):
            assert catalog.find_agent(row.agent, dict(row.env)).env_id


def test_variants_alternate_and_a_ratio_is_of_one_round() -> None:
    order: list[str] = []
    times = {"a": iter([9.0, 1.0, 4.0]), "b": iter([9.0, 2.0, 2.0])}

    def run(name: str) -> float:
        order.append(name)
        return next(times[name])

    found = alternate({"a": lambda: run("a"), "b": lambda: run("b")}, 2)
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert ratios(found["a"], found["b"]) == (1.25, 0.5, 2.0)
