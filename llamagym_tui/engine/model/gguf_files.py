"""GGUF files as models: found, and converted once into a folder that transformers reads like any other.

What a file holds is quantized, mostly to four or eight bits a weight; its folder has the dequantized weights, so what
is trained on top is an adapter over these. Folders lie in the user's cache and can be made again at any time.
"""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from llamagym_tui.errors import ModelLoadError
from llamagym_tui.user_files import (
    cache_dir,
    discard,
    draft_folder,
    file_content,
    make_folder,
    regular_file,
)

SUFFIX = ".gguf"
MAGIC = b"GGUF"
OLLAMA_WEIGHTS = "application/vnd.ollama.image.model"
"""The kind of layer that has the weights, in a manifest of Ollama's."""
SAMPLED_BYTES = 2**20
"""Bytes at a file's beginning and at its end that its folder is named by."""
LARGEST_IN_FP32 = 1_000_000_000
"""Weights up to which the folder has them in float32; those of a larger model are rounded to bfloat16."""
LARGEST_FILE = 2**40


def gguf_file(path: Path) -> Path | None:
    """The GGUF file that a path names; None: the path is of another kind of model.

    It may be the file itself, a folder with one such file (as LM Studio has them), or a manifest of Ollama's
    (``~/.ollama/models/manifests/registry.ollama.ai/library/NAME/TAG``).

    Raises:
        ModelLoadError: a folder has several, or a manifest names a file that is not there.
    """
    if path.is_file():
        if _begins_as_gguf(path):
            return path
        return _of_manifest(path)
    found = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else []
    if len(found) > 1:
        names = ", ".join(each.name for each in found)
        raise ModelLoadError(f"{path} has several GGUF files ({names}): name one of them.")
    return found[0] if found else None


def converted(file: Path, notify: Callable[[str], None] = lambda words: None) -> Path:
    """The folder with a file's model and tokenizer; made if it is not there yet, which takes seconds to minutes.

    Args:
        file: a GGUF file.
        notify: called with what is being done, in words.
    Raises:
        ModelLoadError: transformers cannot read it.
    """
    folder = cache_dir() / "models" / f"{file.stem}-{_fingerprint(file)}"
    if (folder / "config.json").is_file():
        return folder
    make_folder(folder.parent)
    draft = draft_folder(folder.parent)
    try:
        notify(f"converting {file.name} from {quantization(file)}")
        _convert(file, draft)
        put_in_place(draft, folder)
    except Exception as error:
        raise ModelLoadError(
            f"The GGUF file {file.name} cannot be read by transformers: {' '.join(str(error).split())[:200]}"
        ) from error
    finally:
        discard(draft)
    return folder


def put_in_place(made: Path, folder: Path) -> None:
    """Give a folder with a model its name; another process may have made the same one meanwhile."""
    try:
        made.rename(folder)
    except OSError:
        if not (folder / "config.json").is_file():
            raise


def quantization(file: Path) -> str:
    """What most of a file's weights are quantized to, as ``Q4_1``."""
    from gguf import GGUFReader

    counts: dict[str, int] = {}
    for tensor in GGUFReader(file).tensors:
        name = tensor.tensor_type.name
        counts[name] = counts.get(name, 0) + int(tensor.n_elements)
    return max(counts, key=lambda name: counts[name])


def _convert(file: Path, folder: Path) -> None:
    """Write model and tokenizer of a file into a folder."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    model: Any = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(**source)
    # The weights are dequantized by now; as long as a model says that it is quantized, it refuses to be saved.
    model.hf_quantizer = None
    model.is_quantized = False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    if model.num_parameters() > LARGEST_IN_FP32:
        model.to(torch.bfloat16)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _of_manifest(path: Path) -> Path | None:
    """The file that a manifest of Ollama's names; None: the path is no manifest."""
    if path.stat().st_size > SAMPLED_BYTES:
        return None
    try:
        layers = json.loads(file_content(path))["layers"]
        digests = [each["digest"] for each in layers if each["mediaType"] == OLLAMA_WEIGHTS]
    except (ValueError, KeyError, TypeError):
        return None
    for digest in digests:
        name = str(digest).replace(":", "-")
        for parent in path.parents:
            blob = parent / "blobs" / name
            if blob.is_file():
                return blob
        raise ModelLoadError(
            f"The manifest {path} names the file {name}, which is not in Ollama's folder of blobs."
        )
    return None


def _begins_as_gguf(path: Path) -> bool:
    with regular_file(path, most=LARGEST_FILE) as file:
        return file.read(len(MAGIC)) == MAGIC


def _fingerprint(path: Path) -> str:
    """Some letters that another file does not have: of its length, beginning and end."""
    length = path.stat().st_size
    digest = hashlib.sha256(str(length).encode())
    with regular_file(path, most=LARGEST_FILE) as file:
        digest.update(file.read(SAMPLED_BYTES))
        file.seek(max(0, length - SAMPLED_BYTES))
        digest.update(file.read())
    return digest.hexdigest()[:12]
