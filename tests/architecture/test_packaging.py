"""The wheel and an editable install hold what the packages hold, with or without links; pins are the project's.

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
from typing import Any, Literal, get_args

import pytest

from scripts.rooms import modules

ROOT = Path(__file__).resolve().parents[2]
MAPPED = ("agents", "screens", "sft_data")
NOT_PACKAGED = ("__pycache__", "*.pyc", ".*")
PIP = ("--quiet", "--no-index", "--no-build-isolation", "--no-deps")
Links = Literal["kept", "text files", "missing"]
USE = """
from importlib.resources import files
import llamagym_tui.agents.blackjack
import llamagym_tui.cli.report
import llamagym_tui.screens.playground.playground
import llamagym_tui.sft_data
assert "{" in (files("llamagym_tui.screens.playground") / "playground.tcss").read_text("utf-8")
assert any(path.name.endswith(".jsonl") for path in files("llamagym_tui.sft_data").iterdir())
print(llamagym_tui.__file__)
"""


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
    for folder, prefix in [
        (ROOT / "llamagym_tui", ""),
        *((ROOT / name, f"{name}/") for name in MAPPED),
    ]:
        for path in folder.rglob("*"):
            inside = path.relative_to(folder)
            linked = prefix == "" and inside.parts[0] in MAPPED
            hidden = any(part.startswith(".") or part == "__pycache__" for part in inside.parts)
            if path.is_file() and not linked and not hidden:
                found.add(f"llamagym_tui/{prefix}{inside.as_posix()}")
    return found


def tree(folder: Path, links: Links) -> Path:
    """The sources, with the links in the package kept, as git writes them where there are none, or left out."""
    ignore = shutil.ignore_patterns(*NOT_PACKAGED)
    for name in ("llamagym_tui", *MAPPED):
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=ignore)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / name)
    for name in () if links == "kept" else MAPPED:
        (folder / "llamagym_tui" / name).unlink(missing_ok=True)
        if links == "text files":
            (folder / "llamagym_tui" / name).write_text(f"../{name}", encoding="utf-8")
    return folder


def run(*command: str, **options: Any) -> str:
    outcome = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=600, **options
    )
    assert outcome.returncode == 0, outcome.stderr
    return outcome.stdout


def use(folder: Path) -> None:
    """Import modules and read files of what was installed into a folder."""
    # Without -S, an editable install of this checkout would answer; other packages come without their .pth files.
    paths = f"import site, sys; site.addsitedir({str(folder)!r}); sys.path.append({sysconfig.get_path('purelib')!r})"
    where = run("-I", "-S", "-c", f"{paths}\n{USE}", cwd=folder).strip()
    assert Path(where).is_relative_to(folder.parent)


slowly = {links: pytest.param(links, marks=pytest.mark.slow) for links in get_args(Links)}


@pytest.mark.parametrize("links", ["kept", slowly["text files"], slowly["missing"]])
def test_the_wheel_holds_what_the_packages_hold_with_and_without_links(
    links: Links, tmp_path: Path
) -> None:
    sources_without_git = tree(tmp_path / "tree", links)
    run("-m", "pip", "wheel", *PIP, "--wheel-dir", str(tmp_path), str(sources_without_git))
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = {
            name for name in archive.namelist() if not name.split("/")[0].endswith(".dist-info")
        }
        archive.extractall(tmp_path / "site")
    assert packed == sources()
    use(tmp_path / "site")


@pytest.mark.parametrize("links", [slowly["kept"], "text files", slowly["missing"]])
def test_an_editable_install_works_with_and_without_links(links: Links, tmp_path: Path) -> None:
    run(
        "-m",
        "pip",
        "install",
        *PIP,
        "--target",
        str(tmp_path / "site"),
        "-e",
        str(tree(tmp_path / "tree", links)),
    )
    use(tmp_path / "site")


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def test_every_dependency_is_pinned() -> None:
    metadata = project()["project"]
    extras = metadata["optional-dependencies"]
    wanted = [*metadata["dependencies"], *extras["dev"], *extras["docs"]]
    names = {normalised(re.split(r"[<>=!~;\[ ]", requirement)[0]) for requirement in wanted}
    assert names <= {normalised(name) for name in pins()}


def test_every_import_of_somebody_elses_is_declared() -> None:
    groups = project()["project"]
    needs = [*groups["dependencies"], *chain(*groups["optional-dependencies"].values())]
    declared = {normalised(re.split(r"[^\w.-]", each)[0]) for each in needs}
    known = packages_distributions()
    of_a_program = {"conversion"}  # part of llama.cpp's converter, which brings it
    undeclared = set()
    for folder in ("llamagym_tui", "agents", "screens"):
        for path in (ROOT / folder).rglob("*.py"):
            for name in imported(path) - sys.stdlib_module_names - {"llamagym_tui"} - of_a_program:
                makers = {normalised(each) for each in known.get(name, [name])}
                if not makers & declared:
                    undeclared.add(name)
    assert undeclared == set()


def imported(path: Path) -> set[str]:
    """The packages that a file imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def test_torch_is_pinned_the_same_wherever_it_is_named() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert f"torch=={pins()['torch']}" in makefile
    assert "+" not in pins()["torch"]


def test_what_windows_has_not_is_imported_only_where_it_is_used() -> None:
    posix = {"fcntl", "pwd", "resource", "termios", "tty"}
    found = set()
    for name, path in modules().items():
        if not name.startswith("llamagym_tui."):
            continue
        imports = [
            node for node in ast.parse(path.read_text("utf-8")).body if isinstance(node, ast.Import)
        ]
        if posix & {alias.name for node in imports for alias in node.names}:
            found.add(name)
    assert found == {"llamagym_tui.app.terminal"}


def test_the_citation_has_the_version_of_the_package() -> None:
    version = project()["project"]["version"]
    assert f"version: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f'__version__ = "{version}"' in (ROOT / "llamagym_tui" / "__init__.py").read_text(
        encoding="utf-8"
    )
