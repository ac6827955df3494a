"""`make play` installs by uv, and by pip what uv cannot; without a GPU, Linux gets the CPU build of torch."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAKE = shutil.which("make")
TORCH = "torch==2.13.0"
pytestmark = pytest.mark.skipif(MAKE is None, reason="there is no make")


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A fresh clone's Makefile, with programs that keep what they were called with."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    for name in ("python", "uv"):
        program(tmp_path / "v/bin" / name, f'echo "{name} $*" >> {tmp_path}/calls')
    program(tmp_path / "bin/uname", "echo Linux")
    (tmp_path / "bin/touch").symlink_to(shutil.which("touch") or "")
    return tmp_path


def installed(folder: Path) -> list[tuple[str, str]]:
    """Who installed what, in order."""
    assert MAKE is not None
    words = [MAKE, "v/.installed-play", "VENV=v", "PYTHON=none"]
    done = subprocess.run(
        words, cwd=folder, env={"PATH": str(folder / "bin")}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    made = (folder / "calls").read_text(encoding="utf-8").splitlines()
    assert all("-c constraints.txt " in call for call in made)
    return [(call.split()[0], call.split("-c constraints.txt ")[1]) for call in made]


def test_uv_brings_the_cpu_build_of_torch_which_pip_then_finds_and_all_else(folder: Path) -> None:
    assert installed(folder) == [("uv", TORCH), ("python", TORCH), ("uv", "-e .")]
    by_uv = (folder / "calls").read_text(encoding="utf-8").splitlines()[0]
    assert "--torch-backend cpu" in by_uv


@pytest.mark.parametrize("case", ["it fails", "it is not there"])
def test_what_uv_cannot_install_pip_does(folder: Path, case: str) -> None:
    if case == "it fails":
        program(folder / "v/bin/uv", "exit 2")
    else:
        (folder / "v/bin/uv").unlink()
    assert installed(folder) == [("python", TORCH), ("python", "-e .")]


@pytest.mark.parametrize("case", ["a GPU", "no Linux"])
def test_elsewhere_torch_is_what_pip_finds(folder: Path, case: str) -> None:
    program(folder / ("bin/nvidia-smi" if case == "a GPU" else "bin/uname"), "echo Darwin")
    assert installed(folder) == [("python", TORCH), ("uv", "-e .")]
