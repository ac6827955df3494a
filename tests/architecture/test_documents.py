"""The pages in docs/ name everything that there is, and nothing that there is not."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from llamagym_tui.protocol.events import UpdateStats

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("llamagym_tui", "llamagym_tui/protocol", "llamagym_tui/trainer", "llamagym_tui/engine", "agents", "screens")


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def tree() -> set[str]:
    """Modules in the tree of the architecture page, as paths; a folder's line ends in a slash."""
    block = page("ARCHITECTURE.md").split("## The tree")[1].split("```")[1]
    found, folders = set(), [""]
    for line in block.splitlines():
        match = re.match(r"( *)([\w/]+(?:\.py|/))(?: |$)", line)
        if match is None:
            continue
        depth = len(match[1]) // 2
        if match[2].endswith("/"):
            folders = [*folders[: depth + 1], match[2]]
        else:
            found.add("".join(folders[: depth + 1]) + match[2])
    return found


def test_every_module_has_its_line_in_the_tree_and_every_line_its_module() -> None:
    modules = {path.relative_to(ROOT).as_posix() for folder in FOLDERS for path in (ROOT / folder).glob("*.py")}
    empty = {name for name in modules if name.endswith("/__init__.py") and name != "llamagym_tui/__init__.py"}
    assert tree() == modules - empty


def test_every_figure_of_an_update_is_explained() -> None:
    explained = set(re.findall(r"^\| `(\w+)` \|", page("METRICS.md"), re.MULTILINE))
    assert explained == {field.name for field in msgspec.structs.fields(UpdateStats)}


def test_every_rule_names_tests_and_modules_that_there_are() -> None:
    text = page("CORRECTNESS.md")
    tests = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)", path.read_text("utf-8"))
    }
    assert set(re.findall(r"`(test_\w+)`", text)) <= tests
    assert all((ROOT / "llamagym_tui" / name).exists() for name in re.findall(r"`([a-z_/]+(?:\.py|/))`", text))
    assert all(
        "`test_" in line.rsplit("|", 2)[1]
        for line in text.splitlines()
        if line.startswith("| ") and "rule |" not in line
    )


def test_every_dependency_has_its_reason() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    block = project.split("\ndependencies = [")[1].split("]")[0]
    named = set(re.findall(r'"([a-z-]+)[<>=]', block))
    assert named == set(re.findall(r"^\| ([a-z-]+) \|", page("adr/0001-dependencies.md"), re.MULTILINE)) - {
        "dependency"
    }
