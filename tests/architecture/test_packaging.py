"""The wheel holds what the packages hold, the links are their folders, and the pins are those of the project."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAPPED = ("agents", "screens", "sft_data")
NOT_PACKAGED = ("__pycache__", "*.pyc", ".*")


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", MAPPED)
def test_the_link_in_the_package_is_the_folder_itself(name: str) -> None:
    link = ROOT / "llamagym_tui" / name
    if not link.is_symlink() and link.is_file():
        pytest.skip("this checkout has no links")
    assert link.samefile(ROOT / name)
    assert not link.readlink().is_absolute()


def sources() -> set[str]:
    """Files of the packages, as paths in the wheel."""
    found = set()
    for folder, prefix in [(ROOT / "llamagym_tui", ""), *((ROOT / name, f"{name}/") for name in MAPPED)]:
        for path in folder.rglob("*"):
            inside = path.relative_to(folder)
            linked = prefix == "" and inside.parts[0] in MAPPED
            hidden = any(part.startswith(".") or part == "__pycache__" for part in inside.parts)
            if path.is_file() and not linked and not hidden:
                found.add(f"llamagym_tui/{prefix}{inside.as_posix()}")
    return found


def test_the_wheel_holds_what_the_packages_hold(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    ignore = shutil.ignore_patterns(*NOT_PACKAGED)
    for name in ("llamagym_tui", *MAPPED):
        shutil.copytree(ROOT / name, tree / name, symlinks=True, ignore=ignore)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree / name)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-index", "--no-build-isolation", "--no-deps"]
    outcome = subprocess.run(
        [*command, "--wheel-dir", str(tmp_path), str(tree)], capture_output=True, text=True, timeout=600
    )
    assert outcome.returncode == 0, outcome.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if not name.split("/")[0].endswith(".dist-info")}
    assert packed == sources()


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def test_every_dependency_is_pinned() -> None:
    metadata = project()["project"]
    wanted = [*metadata["dependencies"], *metadata["optional-dependencies"]["dev"]]
    names = {normalised(re.split(r"[<>=!~;\[ ]", requirement)[0]) for requirement in wanted}
    assert names <= {normalised(name) for name in pins()}


def test_torch_is_pinned_the_same_wherever_it_is_named() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert f"torch=={pins()['torch']}" in makefile
    assert "+" not in pins()["torch"]


def test_every_sub_package_is_listed() -> None:
    listed = set(project()["tool"]["setuptools"]["packages"])
    found = {"llamagym_tui"}
    for folder in [ROOT / "llamagym_tui", *(ROOT / name for name in MAPPED)]:
        prefix = "llamagym_tui" if folder.name == "llamagym_tui" else f"llamagym_tui.{folder.name}"
        for init in folder.rglob("__init__.py"):
            inside = init.parent.relative_to(folder).parts
            if prefix != "llamagym_tui" or not inside or inside[0] not in MAPPED:
                found.add(".".join([prefix, *inside]))
    assert listed == found
