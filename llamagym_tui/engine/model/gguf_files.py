"""GGUF files as models: found, and converted once into a folder that transformers reads like any other.

A file's weights are quantized, mostly to four or eight bits; its folder has the dequantized weights. Folders lie in
the user's cache and can be made again at any time. transformers ignores some of a file's header, which is carried
into the folder's configuration here, or refused.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from llamagym_tui.engine.model.load_faults import require_all_weights
from llamagym_tui.errors import ModelLoadError, described
from llamagym_tui.user_files import (
    cache_dir,
    discard,
    draft_folder,
    file_content,
    make_folder,
    regular_file,
)

MAGIC = b"GGUF"
OLLAMA_WEIGHTS = "application/vnd.ollama.image.model"
"""The kind of layer that has the weights, in a manifest of Ollama's."""
LARGEST_MANIFEST = 2**16
LARGEST_IN_FP32 = 1_000_000_000
"""Weights up to which the folder has them in float32; those of a larger model are rounded to bfloat16."""
LARGEST_FILE = 2**40
TOLD = 20
"""Tensors between two notices of the progress."""
SAMPLES = 64
"""Of a file, for its fingerprint."""
SAMPLE_BYTES = 2**16
CONVERSION = 3
"""Raised when the folder of the same file changes, so that nobody plays with the folder of an earlier version."""
NEEDED = ("context_length", "embedding_length", "block_count", "attention.head_count")
"""Keys without which transformers would take the sizes of another model."""
TOKENS = "tokenizer.ggml.tokens"
ROPE_FACTORS = "rope_freqs.weight"
"""Divides the frequencies of positions in Llama 3.1 and later."""
LLAMA_3 = {
    "rope_type": "llama3",
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
"""Scaling of positions in Llama 3.1 and later, but for its factor."""
INSTEAD = "take the model as safetensors"


def gguf_file(path: Path) -> Path | None:
    """The GGUF file that a path names; None: the path is of another kind of model.

    It may be the file itself, a folder with one such file (as LM Studio has them), or a manifest of Ollama's
    (``~/.ollama/models/manifests/registry.ollama.ai/library/NAME/TAG``).

    Raises:
        ModelLoadError: a folder has several, or a manifest names a file that is not there.
    """
    if path.is_file():
        with regular_file(path, most=LARGEST_FILE) as file:
            is_gguf = file.read(len(MAGIC)) == MAGIC
        return path if is_gguf else _of_manifest(path)
    found = sorted(path.glob("*.gguf")) if path.is_dir() else []
    if len(found) > 1:
        names = ", ".join(each.name for each in found)
        raise ModelLoadError(f"{path} has several GGUF files ({names}): name one of them.")
    return found[0] if found else None


def _of_manifest(path: Path) -> Path | None:
    """The file that a manifest of Ollama's names; None: the path is no manifest."""
    if path.stat().st_size > LARGEST_MANIFEST:
        return None
    try:
        layers = json.loads(file_content(path))["layers"]
        digest = next(each["digest"] for each in layers if each["mediaType"] == OLLAMA_WEIGHTS)
    except (ValueError, KeyError, TypeError, StopIteration):
        return None
    name = str(digest).replace(":", "-")
    for parent in path.parents:
        blob = parent / "blobs" / name
        if blob.is_file():
            return blob
    raise ModelLoadError(
        f"The manifest {path} names the file {name}, which is not in Ollama's folder of blobs."
    )


def converted(file: Path, notify: Callable[[str], None] = lambda words: None) -> Path:
    """The folder with a file's model and tokenizer; made if it is not there yet, which takes seconds to minutes.

    Args:
        file: a GGUF file.
        notify: called with the progress, in words.
    Raises:
        ModelLoadError: transformers cannot read it, or would read another model than it holds.
    """
    folder = cache_dir() / "models" / f"{file.stem}-{CONVERSION}-{_fingerprint(file)}"
    if (folder / "config.json").is_file():
        return folder
    make_folder(folder.parent)
    draft = draft_folder(folder.parent)
    try:
        from gguf import GGUFReader

        notify(f"reading {file.name}")
        reader = GGUFReader(file)
        keys = {
            name: field.contents()
            for name, field in reader.fields.items()
            if not name.startswith("tokenizer.")  # long lists
        }
        _require_whole(file.name, keys, has_tokens=TOKENS in reader.fields)
        notify(f"converting {file.name}")
        with _computed_once(file.name, reader, notify):
            _convert(file, reader, keys, draft, notify)
        put_in_place(draft, folder)
    except ModelLoadError:
        raise
    except Exception as error:
        raise ModelLoadError(
            f"The GGUF file {file.name} cannot be read by transformers: {described(error)}."
        ) from error
    finally:
        discard(draft)
    return folder


@contextmanager
def _computed_once(file_name: str, reader: Any, notify: Callable[[str], None]) -> Iterator[None]:
    """Within, transformers computes once what it asks of gguf again and again: two thirds of a conversion.

    It reads the header for the configuration, the weights and the tokenizer, and maps names for each module.

    Args:
        file_name: for the progress.
        reader: of the file.
        notify: called with the number of tensors that are dequantized, in words.
    """
    import gguf

    own = gguf.dequantize
    total = len(reader.tensors)
    done = count(1)

    def dequantize(*tensor: Any) -> Any:
        number = next(done)
        if number % TOLD == 0:
            notify(f"converting {file_name}: {number} of {total} tensors")
        return own(*tensor)

    with (
        patch.object(gguf, "GGUFReader", lambda path: reader),
        patch.object(gguf, "get_tensor_name_map", cache(gguf.get_tensor_name_map)),
        patch.object(gguf, "dequantize", dequantize),
    ):
        yield


def _fingerprint(file: Path) -> str:
    """A hash of samples of a file; models that were trained from the same one may begin and end alike."""
    size = file.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with regular_file(file, most=LARGEST_FILE) as content:
        for number in range(SAMPLES):
            content.seek(number * max(0, size - SAMPLE_BYTES) // (SAMPLES - 1))
            digest.update(content.read(SAMPLE_BYTES))
    return digest.hexdigest()[:12]


def put_in_place(made: Path, folder: Path) -> None:
    """Give a folder with a model its name, unless another process has made it already."""
    try:
        made.rename(folder)
    except OSError:
        if not (folder / "config.json").is_file():
            raise


def _convert(
    file: Path, reader: Any, keys: Mapping[str, Any], folder: Path, notify: Callable[[str], None]
) -> None:
    """Write model and tokenizer of a file into a folder.

    Raises:
        ModelLoadError: its header or its weights would not all be in there, or more weights than it has.
    """
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    source = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    config: Any = AutoConfig.from_pretrained(**source)
    factors = [np.asarray(each.data) for each in reader.tensors if each.name == ROPE_FACTORS]
    prefix = f"{keys['general.architecture']}."
    own_keys = {
        name.removeprefix(prefix): value for name, value in keys.items() if name.startswith(prefix)
    }
    _carry_positions(file.name, own_keys, factors, config)
    _require_obeyed(file.name, own_keys, config)
    model: Any
    model, found = AutoModelForCausalLM.from_pretrained(
        **source,
        config=config,
        dtype=torch.float32,
        output_loading_info=True,
        ignore_mismatched_sizes=True,
    )
    require_all_weights(f"The GGUF file {file.name}", {**found, "unexpected_keys": ()})
    in_file = sum(int(each.n_elements) for each in reader.tensors if each.name != ROPE_FACTORS)
    in_model = sum(weight.numel() for weight in model.parameters())
    if in_file > in_model:
        raise ModelLoadError(
            f"The GGUF file {file.name} has {in_file:,} weights, of which transformers reads {in_model:,}: {INSTEAD}."
        )
    notify(f"writing {file.name} as safetensors")
    tokenizer = AutoTokenizer.from_pretrained(**source)
    # The weights are dequantized by now; as long as a model says that it is quantized, it refuses to be saved.
    model.hf_quantizer = None
    model.is_quantized = False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    if in_model > LARGEST_IN_FP32:
        model.to(torch.bfloat16)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _require_whole(file_name: str, keys: Mapping[str, Any], *, has_tokens: bool) -> None:
    """Refuse a header of no whole model, before a model of the size that it seems to have is made."""
    if int(keys.get("split.count", 1)) > 1:
        raise ModelLoadError(
            f"The GGUF file {file_name} is one of {keys['split.count']} parts of a model: merge them with "
            "llama-gguf-split --merge FIRST_PART WHOLE.gguf, and name the whole file."
        )
    architecture = keys.get("general.architecture")
    lacking = [name for name in NEEDED if f"{architecture}.{name}" not in keys]
    if keys.get("general.type", "model") != "model" or lacking or not has_tokens:
        raise ModelLoadError(
            f"The GGUF file {file_name} is no whole model with its tokenizer (its header lacks "
            f"{', '.join(lacking) or TOKENS}): take the model's file as llama.cpp writes it."
        )


def _carry_positions(
    file_name: str, keys: Mapping[str, Any], factors: list[np.ndarray], config: Any
) -> None:
    """Write how a file scales positions into the configuration that transformers has made of it.

    Args:
        file_name: for messages.
        keys: those of the file's architecture.
        factors: the file's `ROPE_FACTORS`, or none.
        config: is changed.
    """
    whole = getattr(config, "rope_parameters", None)
    if whole is None:
        return
    rope = whole.get("full_attention", whole)
    rope["rope_theta"] = float(keys.get("rope.freq_base", 10_000.0))
    factor = float(keys.get("rope.scaling.factor", keys.get("rope.scale_linear", 0.0))) or 1.0
    kind = keys.get("rope.scaling.type", "linear")  # as llama.cpp reads a factor alone
    is_scaled = kind != "none" and not (kind == "linear" and factor == 1.0)
    if rope.get("rope_type") == "proportional":  # it has the factors of itself
        factors = []
    if is_scaled and (kind != "linear" or factors):
        raise ModelLoadError(
            f"The GGUF file {file_name} scales positions by rope.scaling.type {kind!r}, which is not read: {INSTEAD}."
        )
    if is_scaled:
        rope |= {"rope_type": "linear", "factor": factor}
    if factors:
        rope |= llama3_scaling(file_name, factors[0].astype(np.float64), rope["rope_theta"])


def llama3_scaling(file_name: str, factors: np.ndarray, theta: float) -> dict[str, Any]:
    """The rope parameters of Llama 3 that give these factors.

    High frequencies stay as they are and low ones are divided by one factor. Between them the multiplier is linear.

    Args:
        file_name: for a message.
        factors: (E / 2,) by which each frequency is divided, for heads of E numbers.
        theta: the base of the frequencies.
    Raises:
        ModelLoadError: others give them.
    """
    half = len(factors)
    turns = 8192 * theta ** (-np.arange(half) / half) / (2 * math.pi)  # in the original length
    factor = round(float(factors.max()), 4)
    share = np.clip((turns - 1.0) / (4.0 - 1.0), 0, 1)
    # The file has them in float32.
    if not np.allclose(1 / ((1 - share) / factor + share), factors, rtol=1e-4):
        raise ModelLoadError(
            f"The tensor {ROPE_FACTORS} of the GGUF file {file_name} scales positions in another way than Llama 3, "
            f"which is not read: {INSTEAD}."
        )
    return LLAMA_3 | {"factor": factor}


def _require_obeyed(file_name: str, keys: Mapping[str, Any], config: Any) -> None:
    """Refuse a factor, limit or window of the header that the configuration has nowhere.

    transformers passes over keys that it does not know, and would compute another model.
    """
    known = _numbers(config.to_dict())
    for name, value in keys.items():
        is_window = name == "attention.sliding_window"
        is_carried = name in ("rope.scaling.factor", "rope.scale_linear")
        if is_carried or not (isinstance(value, float) or is_window):
            continue
        never_slides = is_window and value >= getattr(config, "max_position_embeddings", math.inf)
        is_neutral = value in (0, 1) or never_slides
        if not is_neutral and not any(math.isclose(value, each, rel_tol=1e-6) for each in known):
            raise ModelLoadError(
                f"The GGUF file {file_name} has {name} = {value} in its header, which transformers does not read: "
                f"{INSTEAD}."
            )


def _numbers(value: Any) -> list[float]:
    """All numbers of a configuration, nested ones too."""
    if isinstance(value, dict):
        return _numbers(list(value.values()))
    if isinstance(value, list | tuple):
        return [number for part in value for number in _numbers(part)]
    return [value] if isinstance(value, int | float) else []
