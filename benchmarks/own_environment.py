"""A Python environment of its own for what cannot run next to this project: made by venv and pip, once."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import platformdirs

MADE = "made-from.txt"
"""Written into the environment last, with the requirements that it was made from."""


def default_folder(name: str) -> Path:
    """In the user's cache."""
    return Path(platformdirs.user_cache_dir("llamagym-tui", appauthor=False)) / name


def variables() -> dict[str, str]:
    """Ours without those by which Python would find our own packages."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "PYTHONHOME")
    }


def interpreter(
    folder: Path, python: str, requirements: Path, without_dependencies: Sequence[str] = ()
) -> Path:
    """The Python of an environment, made first if it is not there.

    Args:
        folder: of the environment.
        python: that makes it.
        requirements: file of what is installed.
        without_dependencies: what is installed after that, by itself.
    Raises:
        subprocess.CalledProcessError: venv or pip failed; their error is on stderr.
    """
    found = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    made_from = "\n".join([*without_dependencies, requirements.read_text(encoding="utf-8")])
    if (folder / MADE).is_file() and (folder / MADE).read_text(encoding="utf-8") == made_from:
        return found
    print(f"Making an environment in {folder}, from {requirements.name}:")
    print(
        "  " + ", ".join(line for line in made_from.splitlines() if not line.startswith("#")),
        flush=True,
    )
    subprocess.run([python, "-m", "venv", "--clear", str(folder)], check=True)
    pip = [str(found), "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    subprocess.run([*pip, "--requirement", str(requirements)], check=True)
    for each in without_dependencies:
        subprocess.run([*pip, "--no-deps", each], check=True)
    (folder / MADE).write_text(made_from, encoding="utf-8")
    return found
