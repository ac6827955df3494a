from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import worlds
from benchmarks.world_rows import MOST_DEMONSTRATIONS, ROWS, Row
from benchmarks.world_table import Record, table
from benchmarks.worlds import Records, Way, learnt, require_same_way, train_model
from llamagym_tui.setup import catalog

ROW = Row("blackjack", wanted=0.5, episodes=10)


def found(
    seed: int, minutes: float, greedy: float, sampled: float = 0.0, turns: int = 1000, **more: Any
) -> Record:
    played = {"greedy": {"mean_return": greedy}, "sampled": {"mean_return": sampled}}
    return {
        "world": "w",
        "player": "model",
        "seed": seed,
        "minutes": minutes,
        "turns": turns,
        **played,
        **more,
    }


def row_of(
    row: Row, *records: Record, seeds: int = 3, marks: tuple[float, ...] = (2, 10)
) -> list[str]:
    return [
        cell.strip()
        for cell in table({"w": row}, records, marks, seeds).splitlines()[-1].strip("|").split("|")
    ]


def three(*greedy: float, minutes: float = 10, **more: Any) -> list[Record]:
    return [found(seed, minutes, each, **more) for seed, each in enumerate(greedy)]


def test_a_row_has_medians_over_the_seeds_and_their_extremes() -> None:
    early = [found(seed, 2, 0.1 * seed, first_batch=-seed, batches=0.01) for seed in range(3)]
    late = three(0.9, 0.55, 0.4, sampled=0.25, batches=0.5, turns=20_000)
    mlp = found(0, 10, 0.75) | {"player": "mlp"}
    reference = {"world": "w", "player": "reference", "random": -0.2, "optimal": 12.34}
    cells = row_of(ROW, *early, *late, mlp, reference)
    batches = "first -1.000 → 0.0100, 0.5000"
    greedy = "0.1000, 0.5500 (0.4000 to 0.9000)"
    assert cells == [
        "w",
        "-0.2000",
        "12.3",
        "0.7500",
        batches,
        greedy,
        "0.2500",
        "20,000",
        "0.5000",
        "yes",
    ]


@pytest.mark.parametrize(
    ("row", "records", "reached"),
    [
        (ROW, three(0.9, 0.49, 0.4), "**no**"),
        (ROW, three(0.9, 0.9), "—"),
        (ROW._replace(sampled=0.3), three(0.9, 0.9, 0.9, sampled=0.2), "**no**"),
        (ROW._replace(sampled=0.3), three(0.9, 0.9, 0.9, sampled=0.3), "yes"),
    ],
)
def test_a_row_has_what_is_wanted_if_its_medians_do_and_no_seed_is_missing(
    row: Row, records: list[Record], reached: str
) -> None:
    assert row_of(row, *records)[-1] == reached


def test_after_a_warm_start_ppo_may_not_end_lower() -> None:
    row = ROW._replace(demonstrations=50)
    before, after = three(0.8, 0.7, 0.6, minutes=0), three(0.9, 0.69, 0.5)
    cells = row_of(row, *before, *after)
    assert "warm start 0.7000 → " in cells[5]
    assert cells[-1] == "**no**: lower than before PPO"
    assert row_of(row, *before, *three(0.9, 0.7, 0.5))[-1] == "yes"


def test_where_turns_count_the_first_evaluation_within_them_is_what_counts() -> None:
    row = ROW._replace(turns=3000)
    runs = [found(0, 2, 0.6, turns=500), *three(0.1, 0.1, 0.1)]
    runs += [found(1, 12, 0.5, turns=2000), found(2, 12, 0.9, turns=3001)]
    assert row_of(row, *runs)[-1] == "yes, after 12 min, 2,000 turns"
    assert (
        row_of(row, *[each for each in runs if each["turns"] != 2000])[-1]
        == "**no** (1 of 3 seeds)"
    )


def test_the_batches_show_when_what_is_wanted_was_first_there() -> None:
    means = (-1.0, None, 0.5, 0.2)
    stats = [
        {
            "mean_return": mean,
            "explained_variance": 0.1,
            "turns": 100,
            "rollout_s": 20.0,
            "update_s": 10.0,
        }
        for mean in means
    ]
    shown = learnt([{"stats": each} for each in stats], wanted=0.5)
    assert (shown["first_batch"], shown["batches"]) == (-1.0, pytest.approx(-0.1))
    assert shown["reached"] == {"turns": 300, "minutes": 1.5}


def test_a_torn_line_is_left_out_and_the_next_one_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    Records(file).add({"world": "w", "minutes": 2})
    with file.open("a") as results:
        results.write('{"world": "w", "min')
    Records(file).add({"world": "w", "minutes": 5})
    assert [each["minutes"] for each in Records(file).of(world="w")] == [2, 5]


class Played:
    """Commands of a table whose runs play nothing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, turns_a_minute: int = 100) -> None:
        self.commands: list[str] = []
        self.fails_at = -1.0
        self.rate = turns_a_minute
        self.share = 1.0
        monkeypatch.setattr(worlds, "summary", self.summary)
        monkeypatch.setattr(worlds, "with_share", lambda *words: (self.summary(*words), self.share))
        monkeypatch.setattr(worlds, "evaluated", self.evaluated)
        monkeypatch.setattr(
            worlds, "expert_file", lambda path, agent, *more: self.commands.append("demonstrations")
        )
        monkeypatch.setattr(worlds, "updates_of", lambda run_dir: [])

    def summary(self, command: str, agent: str, *words: object) -> dict[str, Any]:
        options = [str(word) for word in words]
        run_dir = Path(options[options.index("--run-dir") + 1])
        run_dir.mkdir(parents=True, exist_ok=True)
        (run_dir / "config.json").touch()
        minutes = float(options[options.index("--minutes") + 1]) if command == "train" else 0.0
        self.commands.append(f"{'resume' if '--resume' in options else command} {minutes:g}")
        if minutes == self.fails_at:
            raise KeyboardInterrupt
        return {
            "env_steps": int(minutes * self.rate),
            "episodes": 1,
            "updates": 1,
            "elapsed_s": 60 * minutes,
        }

    def evaluated(self, *words: object) -> dict[str, Any]:
        played = {
            "mean_return": 0.0,
            "return_stderr": 0.0,
            "parse_failure_rate": 0.0,
            "episodes": 1,
        }
        return {"greedy": played, "sampled": played}

    def taken(self) -> Iterator[str]:
        while self.commands:
            yield self.commands.pop(0)


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    return Played(monkeypatch)


def way_of(folder: Path, **changed: Any) -> Way:
    return Way(folder, [2, 5, 10], 1, "bundled", [], None)._replace(**changed)


def test_a_table_that_was_interrupted_goes_on_where_it_was(tmp_path: Path, played: Played) -> None:
    way, file = way_of(tmp_path), tmp_path / "results.jsonl"
    played.fails_at = 5
    with pytest.raises(KeyboardInterrupt):
        train_model(Records(file), "taxi_warm", 1, way)
    assert list(played.taken()) == ["demonstrations", "sft 0", "resume 2", "resume 5"]
    played.fails_at = -1
    train_model(Records(file), "taxi_warm", 1, way)
    assert list(played.taken()) == ["resume 5", "resume 10"]
    train_model(Records(file), "taxi_warm", 1, way)
    assert list(played.taken()) == []
    assert [each["minutes"] for each in Records(file).all] == [0, 2, 5, 10]


def test_minutes_are_of_a_core_that_others_have_too(tmp_path: Path, played: Played) -> None:
    played.share = 0.5
    train_model(Records(tmp_path / "results.jsonl"), "taxi", 1, way_of(tmp_path, minutes=[2]))
    # Of 120 s, half of 2, 1, 0.5, 0.25, 0.125 and 0.0625 minutes leave 3.75 s, which are too few for another command.
    assert list(played.taken()) == [
        "train 2",
        "resume 3",
        "resume 3.5",
        "resume 3.75",
        "resume 3.875",
    ]
    (record,) = Records(tmp_path / "results.jsonl").all
    assert record["elapsed_s"] == 232.5
    assert record["trained_s"] == 116.25


def test_a_run_without_a_result_begins_again(tmp_path: Path, played: Played) -> None:
    left = tmp_path / "runs" / "taxi-1" / "config.json"
    left.parent.mkdir(parents=True)
    left.touch()
    train_model(Records(tmp_path / "results.jsonl"), "taxi", 1, way_of(tmp_path, minutes=[2]))
    assert list(played.taken()) == ["train 2"]


def test_a_run_goes_on_to_its_turns_where_they_count(tmp_path: Path, played: Played) -> None:
    played.rate = 20_000
    train_model(Records(tmp_path / "results.jsonl"), "cart_pole", 1, way_of(tmp_path))
    assert list(played.taken()) == [
        "train 2",
        "resume 5",
        "resume 10",
        "resume 12",
        "resume 14",
        "resume 16",
    ]


def test_results_of_other_settings_or_marks_are_not_mixed(tmp_path: Path, played: Played) -> None:
    records = Records(tmp_path / "results.jsonl")
    train_model(records, "taxi", 1, way_of(tmp_path))
    require_same_way(records, way_of(tmp_path))
    with pytest.raises(SystemExit, match="name another --folder"):
        require_same_way(records, way_of(tmp_path, settings=["ppo.lr=1"]))
    with pytest.raises(SystemExit, match="name another --folder"):
        require_same_way(records, way_of(tmp_path, episodes=10))
    with pytest.raises(SystemExit, match="beyond 3"):
        train_model(records, "taxi", 1, way_of(tmp_path, minutes=[3]))


def test_each_row_has_a_world_and_a_warm_start_has_few_demonstrations() -> None:
    assert list(ROWS)[-6:] == ["greenhouse", "abbey", "tide", "tank", "post", "stall"]
    assert all(row.demonstrations in (0, MOST_DEMONSTRATIONS) for row in ROWS.values())
    assert MOST_DEMONSTRATIONS <= 50
    wanted = {name: ROWS[name].wanted for name in ("kitchen", "greenhouse", "abbey", "tide")}
    assert wanted == pytest.approx(
        {"kitchen": 0.861, "greenhouse": 3.071, "abbey": 0.780, "tide": 4.2}, abs=1e-3
    )
    for row in ROWS.values():
        if not row.agent.startswith("tw-"):
            assert catalog.find_agent(row.agent, dict(row.env)).env_id


def test_the_reworded_blackjack_has_the_same_hands_in_other_words() -> None:
    ours, theirs = (
        catalog.find_agent(ROWS[name].agent)() for name in ("blackjack", "blackjack_reworded")
    )
    assert (
        theirs.format_observation((18, 1, 1))
        == "The house turned up an ace. Your cards make 18, of which an ace makes 11."
    )
    hands = [
        (total, card, ace) for total in range(4, 22) for card in range(1, 11) for ace in (0, 1)
    ]
    assert len({theirs.format_observation(hand) for hand in hands}) == len(hands)
    assert theirs.get_system_prompt() != ours.get_system_prompt()
    assert not set(theirs.action_names) & set(ours.action_names)
    assert (theirs.env_id, theirs.env_kwargs) == (ours.env_id, ours.env_kwargs)
