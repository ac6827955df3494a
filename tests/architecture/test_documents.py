"""The pages in docs/ name everything that there is, and nothing that there is not."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from llamagym_tui.protocol.events import UpdateStats

ROOT = Path(__file__).resolve().parents[2]


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def test_every_figure_of_an_update_is_explained() -> None:
    explained = set(re.findall(r"^\| `(\w+)` \|", page("METRICS.md"), re.MULTILINE))
    assert explained == {field.name for field in msgspec.structs.fields(UpdateStats)}


def names_of_tests() -> set[str]:
    return {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)", path.read_text("utf-8"))
    }


def test_every_rule_names_tests_and_modules_that_there_are() -> None:
    text = page("CORRECTNESS.md")
    assert set(re.findall(r"`(test_\w+)`", text)) <= names_of_tests()
    assert all(
        (ROOT / "llamagym_tui" / name).exists()
        for name in re.findall(r"`([a-z_/]+(?:\.py|/))`", text)
    )
    assert all(
        "`test_" in line.rsplit("|", 2)[1]
        for line in text.splitlines()
        if line.startswith("| ") and "rule |" not in line
    )


def test_every_promise_has_a_test_that_there_is() -> None:
    promises = [
        line
        for line in page("RELIABILITY.md").split("## Campaigns")[0].splitlines()
        if line.startswith("| ")
    ]
    kept = [
        re.findall(r"`(test_\w+)`", line.rsplit("|", 2)[1])
        for line in promises
        if not line.endswith("| test |")
    ]
    assert len(kept) > 30
    assert all(kept)
    assert {name for names in kept for name in names} <= names_of_tests()


def test_every_dependency_has_its_reason() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    block = project.split("\ndependencies = [")[1].split("]")[0]
    named = set(re.findall(r'"([a-z-]+)[<>=]', block))
    assert named == set(
        re.findall(r"^\| ([a-z-]+) \|", page("adr/0001-dependencies.md"), re.MULTILINE)
    ) - {"dependency"}
