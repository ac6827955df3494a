"""`make play` takes the CPU build of torch through uv on Linux without a GPU, and goes on with pip where it cannot."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAKE = shutil.which("make")
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
    program(tmp_path / "v/bin/python", f'echo "python $*" >> {tmp_path}/calls')
    program(tmp_path / "bin/uname", "echo Linux")
    program(tmp_path / "bin/uv", f'echo "uv $*" >> {tmp_path}/calls')
    (tmp_path / "bin/touch").symlink_to(shutil.which("touch") or "")
    return tmp_path


def calls(folder: Path) -> list[str]:
    """What installing calls, in order, up to torch and past it."""
    assert MAKE is not None
    words = [MAKE, "v/.installed-play", "VENV=v", "PYTHON=none"]
    done = subprocess.run(
        words, cwd=folder, env={"PATH": str(folder / "bin")}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    made = (folder / "calls").read_text(encoding="utf-8").splitlines()
    assert made[-1].endswith("install -c constraints.txt -e .")
    return made[:-1]


def test_the_cpu_build_comes_through_uv_and_pip_then_finds_it(folder: Path) -> None:
    by_uv, by_pip = calls(folder)
    assert by_uv.startswith("uv pip install ")
    assert "--torch-backend cpu" in by_uv
    assert by_pip.startswith("python -m pip ")
    assert by_uv.split()[-1] == by_pip.split()[-1]


def test_what_uv_cannot_reach_pip_installs(folder: Path) -> None:
    program(folder / "bin/uv", "exit 2")
    assert [call.split()[0] for call in calls(folder)] == ["python"]


@pytest.mark.parametrize("case", ["no uv", "a GPU", "no Linux"])
def test_elsewhere_pip_alone_installs(folder: Path, case: str) -> None:
    if case == "no uv":
        (folder / "bin/uv").unlink()
    else:
        program(folder / ("bin/nvidia-smi" if case == "a GPU" else "bin/uname"), "echo Darwin")
    assert [call.split()[0] for call in calls(folder)] == ["python"]
