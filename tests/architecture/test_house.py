"""The measures of the house: what they count, and that the walks through it pass what is there."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from scripts.house import (
    LEDGER,
    Measured,
    Row,
    Way,
    density_lines,
    is_written_data,
    ledger_faults,
    part_of,
    way_faults,
    ways,
    weight_lines,
)
from scripts.syntax import code_lines, node_count

WAYS = [*ways().walks, *ways().changes]
SOURCE = '''"""A module."""

# A comment.
MOST = 8
"""What it is."""


def doubled(number):
    """Twice."""
    return (
        number + number
    )
'''


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.title)
def test_every_step_of_a_walk_and_of_a_change_is_there(way: Way) -> None:
    assert list(way_faults(way)) == []


def test_the_layout_of_code_has_no_weight() -> None:
    packed, spread = ast.parse("x = [a, b]"), ast.parse("x = [\n    a,\n    b,\n]")
    # The module, the assignment, its target, the list, and two names in it.
    assert node_count(packed) == node_count(spread) == 6


def test_blank_lines_comments_and_docstrings_are_no_lines_of_code() -> None:
    assert code_lines(SOURCE, ast.parse(SOURCE)) == 5


def test_weight_is_by_part_and_a_ninth_of_the_bytes_of_data() -> None:
    python = [
        Measured("llamagym_tui/engine/threads.py", 100, 20),
        Measured("llamagym_tui/engine/tokens/token_tree.py", 50, 10),
        Measured("tests/engine/test_threads.py", 30, 6),
    ]
    assert list(weight_lines(python, {"screens/help/tour.tcss": 900})) == [
        "weight: 280 (180 of Python, 100 of data)",
        "       150  llamagym_tui/engine",
        "       100  screens (data 100)",
        "        30  tests",
    ]


def test_only_data_that_people_write_has_weight() -> None:
    assert is_written_data("screens/metrics/metrics.tcss")
    assert is_written_data("llamagym_tui/models.toml")
    assert not is_written_data("llamagym_tui/bundled_model/tokenizer.json")
    assert not is_written_data("tests/recorded/version_0_1_0/run/config.json")
    assert not is_written_data("docs/GUIDE.md")


def test_a_room_of_the_package_is_a_part_and_so_is_each_other_folder_at_the_top() -> None:
    assert part_of("llamagym_tui/engine/model/lean.py") == "llamagym_tui/engine"
    assert part_of("llamagym_tui/errors.py") == "llamagym_tui"
    assert part_of("screens/help/tour.py") == "screens"
    assert part_of("docs/examples/gem_agent.py") == "docs/examples"
    assert part_of("pyproject.toml") == "top"


def test_the_densest_files_come_first_each_with_its_ceiling() -> None:
    files = [Measured("agents/taxi.py", 60, 20), Measured("llamagym_tui/engine/model/a.py", 90, 10)]
    assert list(density_lines(files)) == [
        "density: 5.00 nodes a line of code (30 lines); the densest files:",
        "   9.00 of 13  llamagym_tui/engine/model/a.py",
        "   3.00 of 9.5  agents/taxi.py",
    ]


def test_a_file_counts_once_on_a_walk() -> None:
    way = Way("there", "", 2, [Row("a.py", "f", ""), Row("b.py", "g", ""), Row("a.py", "h", "")])
    assert way.files == 2


def test_a_walk_over_what_is_gone_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("class A:\n    size: int\n\n    async def run(self): ...\n")
    (tmp_path / "a.toml").write_text("[keys]\n")
    there = [Row("a.py", "A.run", ""), Row("a.py", "A.size", ""), Row("a.toml", "[keys]", "")]
    gone = [Row("b.py", "run", ""), Row("a.py", "run", ""), Row("a.toml", "[colours]", "")]
    new = [Row("c.py", "", ""), Row("a.py", "", "")]
    assert list(way_faults(Way("there", "", 0, [*there, *gone, *new]), tmp_path)) == [
        "there: there is no file b.py",
        "there: a.py has no run",
        "there: a.toml has no [colours]",
        "there: a.py is there, so its row needs a symbol",
    ]


def test_the_ledger_lacks_what_has_no_row_and_has_nothing_that_is_gone() -> None:
    text = LEDGER.read_text(encoding="utf-8")
    doctor = next(line for line in text.splitlines() if line.startswith("| `doctor`"))
    card = "| `PlaygroundScreen` | `C` | `card` |"
    assert doctor in text
    assert card in text
    changed = text.replace(doctor, "| `surgeon` | Nobody. |")
    changed = changed.replace(card, "| `PlaygroundScreen` | `C` `f9` | `card` `ace` |")
    assert set(ledger_faults(changed)) - set(ledger_faults(text)) == {
        "ledger: too little on who uses [['surgeon']]: Nobody.",
        "ledger, Commands: doctor is missing",
        "ledger, Commands: surgeon is gone",
        "ledger, Keys: PlaygroundScreen f9 is gone",
        "ledger, Keys: PlaygroundScreen ace is gone",
    }


def test_the_ledger_has_every_command_setting_and_key_and_nothing_that_is_gone() -> None:
    assert list(ledger_faults(LEDGER.read_text(encoding="utf-8"))) == []
