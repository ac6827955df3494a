"""GGUF files as models: found, and converted once into a folder that transformers reads like any other.

What a file holds is quantized, mostly to four or eight bits a weight; its folder has the dequantized weights, so what
is trained on top is an adapter over these. Folders lie in the user's cache and can be made again at any time.
"""

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from llamagym_tui.engine.model.gguf_header import (
    ROPE_FACTORS,
    carry_positions,
    require_obeyed,
    require_whole,
)
from llamagym_tui.engine.model.load_faults import require_all_weights
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
SAMPLES = 64
"""Places of a file, from its beginning to its end, that its folder is named by."""
SAMPLED_BYTES = 2**16
"""Bytes of each."""
LARGEST_IN_FP32 = 1_000_000_000
"""Weights up to which the folder has them in float32; those of a larger model are rounded to bfloat16."""
LARGEST_FILE = 2**40
PART = re.compile(r".*-\d{5}-of-(?!00001)\d{5}\.gguf")
"""Names of the parts in which llama.cpp divides a large model."""
CONVERSION = 2
"""Raised when the folder of the same file changes, so that nobody plays with what an earlier version has made."""


def gguf_file(path: Path) -> Path | None:
    """The GGUF file that a path names; None: the path is of another kind of model.

    It may be the file itself, a folder with one such file (as LM Studio has them), or a manifest of Ollama's
    (``~/.ollama/models/manifests/registry.ollama.ai/library/NAME/TAG``).

    Raises:
        ModelLoadError: a folder has several, or the parts of one, or a manifest names a file that is not there.
    """
    if path.is_file():
        if _begins_as_gguf(path):
            return path
        return _of_manifest(path)
    found = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else []
    parts = [each for each in found if PART.fullmatch(each.name)]
    if parts and len(parts) == len(found):
        raise ModelLoadError(
            f"{path} has a model in parts ({parts[0].name} and so on): merge them with llama-gguf-split --merge "
            f"{parts[0].name} WHOLE.gguf, and name the whole file."
        )
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
        ModelLoadError: transformers cannot read it, or would read another model than it holds.
    """
    folder = cache_dir() / "models" / f"{file.stem}-{_fingerprint(file)}"
    if (folder / "config.json").is_file():
        return folder
    make_folder(folder.parent)
    draft = draft_folder(folder.parent)
    try:
        from gguf import GGUFReader

        reader = GGUFReader(file)
        require_whole(file.name, reader)
        notify(f"converting {file.name} from {quantization(reader)}")
        _convert(file, reader, draft)
        put_in_place(draft, folder)
    except ModelLoadError:
        raise
    except Exception as error:
        raise ModelLoadError(
            f"The GGUF file {file.name} cannot be read by transformers: {' '.join(str(error).split())[:200]}"
        ) from error
    finally:
        discard(draft)
    return folder


def put_in_place(made: Path, folder: Path) -> None:
    """Give a folder with a model its name, unless another process has made it already."""
    try:
        made.rename(folder)
    except OSError:
        if not (folder / "config.json").is_file():
            raise


def quantization(reader: Any) -> str:
    """The quantization of most of a file's weights, as ``Q4_1``."""
    counts: dict[str, int] = {}
    for tensor in reader.tensors:
        name = tensor.tensor_type.name
        counts[name] = counts.get(name, 0) + int(tensor.n_elements)
    return max(counts, key=lambda name: counts[name])


def _convert(file: Path, reader: Any, folder: Path) -> None:
    """Write model and tokenizer of a file into a folder.

    Raises:
        ModelLoadError: not all of its header and weights would be in there, or more weights than it has.
    """
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    source = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    config: Any = AutoConfig.from_pretrained(**source)
    carry_positions(file.name, reader, config)
    require_obeyed(file.name, reader, config)
    model: Any
    model, found = AutoModelForCausalLM.from_pretrained(
        **source,
        config=config,
        dtype=torch.float32,
        output_loading_info=True,
        ignore_mismatched_sizes=True,
    )
    left_over = _left_over(reader, model)
    require_all_weights(f"The GGUF file {file.name}", {**found, "unexpected_keys": left_over})
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


def _left_over(reader: Any, model: Any) -> list[str]:
    """Names of the file's tensors that nothing has read; none, where the model has as many weights as the file."""
    from transformers.modeling_gguf_pytorch_utils import (
        TENSOR_PROCESSORS,
        TensorProcessor,
        get_gguf_hf_weights_map,
    )

    tensors = {each.name: int(each.n_elements) for each in reader.tensors}
    tensors.pop(ROPE_FACTORS, None)  # carried into the configuration, or refused
    if sum(tensors.values()) == sum(weight.numel() for weight in model.parameters()):
        return []
    architecture = reader.fields["general.architecture"].contents()
    processor = TENSOR_PROCESSORS.get(architecture, TensorProcessor)(config=model.config.to_dict())
    read = get_gguf_hf_weights_map(model, processor)
    return [
        name for name in tensors if name not in read and name.removesuffix(".weight") not in read
    ]


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
    """Some letters that another file does not have: of its length, and of what it has in `SAMPLES` places.

    Models that were trained from the same one may begin and end alike.
    """
    length = path.stat().st_size
    digest = hashlib.sha256(f"{CONVERSION} {length}".encode())
    last = max(0, length - SAMPLED_BYTES)
    with regular_file(path, most=LARGEST_FILE) as file:
        for place in range(SAMPLES):
            file.seek(place * last // (SAMPLES - 1))
            digest.update(file.read(SAMPLED_BYTES))
    return digest.hexdigest()[:12]
