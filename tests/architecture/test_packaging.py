"""The wheel holds what the packages hold, with or without links; imports are declared, and dependencies pinned.

Git on Windows writes a link as a text file with the link's target; a zip of the sources may leave links out.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAPPED = ("agents", "screens", "sft_data")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
USE = """
from importlib.resources import files
import llamagym_tui.agents.blackjack
import llamagym_tui.cli.report
import llamagym_tui.screens.playground.playground
import llamagym_tui.sft_data
assert "{" in (files("llamagym_tui.screens.playground") / "playground.tcss").read_text("utf-8")
assert any(path.name.endswith(".jsonl") for path in files("llamagym_tui.sft_data").iterdir())
"""


def sources() -> set[str]:
    """Files of the packages, as paths in the wheel."""
    found = set()
    folders = {"llamagym_tui": ROOT / "llamagym_tui"}
    for name in MAPPED:
        folders[f"llamagym_tui/{name}"] = ROOT / name
    for prefix, folder in folders.items():
        for path in folder.rglob("*"):
            inside = path.relative_to(folder)
            hidden = any(part.startswith(".") or part == "__pycache__" for part in inside.parts)
            linked = prefix == "llamagym_tui" and inside.parts[0] in MAPPED
            if path.is_file() and not linked and not hidden:
                found.add(f"{prefix}/{inside.as_posix()}")
    return found


@pytest.mark.parametrize("links", ["kept", pytest.param("text files", marks=pytest.mark.slow)])
def test_the_wheel_holds_what_the_packages_hold_with_and_without_links(
    links: str, tmp_path: Path
) -> None:
    checkout = tmp_path / "checkout"
    ignore = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")
    for name in ("llamagym_tui", *MAPPED):
        shutil.copytree(ROOT / name, checkout / name, symlinks=True, ignore=ignore)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, checkout / name)
    if links == "text files":
        for name in MAPPED:
            (checkout / "llamagym_tui" / name).unlink()
            (checkout / "llamagym_tui" / name).write_text(f"../{name}", encoding="utf-8")
    pip = ["-m", "pip", "wheel", "--quiet", "--no-index", "--no-build-isolation", "--no-deps"]
    command = [sys.executable, *pip, "--wheel-dir", str(tmp_path), str(checkout)]
    subprocess.run(command, check=True, timeout=600)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
        archive.extractall(tmp_path / "site")
    assert packed == sources()
    # -S leaves out the .pth file of this checkout's own install.
    paths = (
        f"import sys; sys.path[:0] = {[str(tmp_path / 'site'), sysconfig.get_path('purelib')]!r}"
    )
    program = [sys.executable, "-I", "-S", "-c", f"{paths}\n{USE}"]
    subprocess.run(program, check=True, timeout=600, cwd=tmp_path)


def normalised(requirement: str) -> str:
    """The name of a distribution as the package index compares it."""
    name = re.split(r"[<>=!~;\[ ]", requirement)[0]
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_dependency_is_pinned() -> None:
    extras = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"], *extras["dev"], *extras["docs"]]
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = {line for line in lines if line and not line.startswith("#")}
    assert set(map(normalised, wanted)) <= set(map(normalised, pins))
    (torch,) = [line for line in pins if line.startswith("torch==")]
    assert torch in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_every_import_of_a_foreign_package_is_declared() -> None:
    needs = [*PROJECT["dependencies"], *chain(*PROJECT["optional-dependencies"].values())]
    declared = set(map(normalised, needs))
    of_llama_cpp = {"conversion"}  # its converter brings this module
    known = packages_distributions()
    undeclared = set()
    for name in imported_by_the_package() - of_llama_cpp:
        if not set(map(normalised, known.get(name, [name]))) & declared:
            undeclared.add(name)
    assert undeclared == set()


def test_every_dependency_is_imported() -> None:
    needed = set(map(normalised, PROJECT["dependencies"]))
    known = packages_distributions()
    used = chain(*(known.get(name, [name]) for name in imported_by_the_package()))
    assert needed - set(map(normalised, used)) == set()


def imported_by_the_package() -> set[str]:
    """Modules of others that a file of the package imports."""
    names: set[str] = set()
    for folder in ("llamagym_tui", "agents", "screens"):
        for path in (ROOT / folder).rglob("*.py"):
            names |= imported(path)
    return names - sys.stdlib_module_names - {"llamagym_tui"}


def imported(path: Path) -> set[str]:
    """The packages that a file imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names
