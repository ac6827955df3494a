"""Written models are read again before anybody is told that they are written: what a folder has is what was trained.

A folder is filled as a draft, loaded, and compared with the model in memory on three prompts; only then it gets its
name. Where the log-probabilities differ by more than `TOLERANCE`, nothing stays. What is written is up to the caller.
"""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from llamagym_tui.engine.model.value_head import AutoModelForCausalLMWithValueHead
from llamagym_tui.errors import RunStoreError
from llamagym_tui.user_files import discard, draft_folder, file_content, make_folder

TOLERANCE = 1e-3
"""Nats by which a log-probability may differ: more than rounding in float32, less than anything that was trained."""
MOST_IDS = 256
"""Ids of a text that are looked at."""
FROM_ALL_OVER = 64
"""Ids of the prompt that is drawn evenly from the whole vocabulary."""
LAST = 8
"""Ids at the vocabulary's end, where a resized one has its new tokens."""
ADAPTER = "adapter_config.json"
BASE = "base_model_name_or_path"
"""Where an adapter's settings name the model that it is on."""
WEIGHTS = ("config.json", ADAPTER, "*.safetensors", "*.safetensors.index.json")
"""The files that decide what is loaded from a folder."""


class Sample(NamedTuple):
    """What a model in memory says of some prompts."""

    texts: list[str]
    prompts: list[list[int]]
    """Ids of the texts, and those from all over the vocabulary."""
    logprobs: list[Tensor]
    """(T, V) of each prompt, in float32 on the host."""
    quantization: Any
    """How the model's weights are quantized. None: they are not."""
    device: torch.device
    dtype: torch.dtype

    @classmethod
    def of(cls, lm: Any, tokenizer: Any, texts: list[str]) -> Self:
        """What a causal LM, adapters in place, says of some texts, and of ids from all over its vocabulary."""
        vocabulary = lm.get_input_embeddings().weight.shape[0]
        everywhere = torch.linspace(0, vocabulary - 1, FROM_ALL_OVER).long().tolist()
        everywhere += range(max(0, vocabulary - LAST), vocabulary)
        prompts = [*_ids(tokenizer, texts), everywhere]
        return cls(
            texts=texts,
            prompts=prompts,
            logprobs=_logprobs(lm, prompts),
            quantization=getattr(lm.config, "quantization_config", None),
            device=lm.device,
            dtype=lm.dtype,
        )

    def difference(self, lm: Any) -> float:
        """Nats by which another model's log-probabilities differ at most; infinite: its vocabulary is another one."""
        rows = lm.get_input_embeddings().weight.shape[0]
        if rows <= max(map(max, self.prompts)):
            return float("inf")
        differences = []
        for ours, theirs in zip(self.logprobs, _logprobs(lm, self.prompts), strict=True):
            if ours.shape != theirs.shape:
                return float("inf")
            differences.append(float((ours - theirs).abs().max().nan_to_num(float("inf"))))
        return max(differences)


def _ids(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """Ids of texts, none of them empty."""
    return [tokenizer(text)["input_ids"][:MOST_IDS] or [0] for text in texts]


@torch.no_grad()
def _logprobs(lm: Any, prompts: Sequence[Sequence[int]]) -> list[Tensor]:
    was_training = lm.training
    lm.eval()
    found = []
    for ids in prompts:
        logits = lm(torch.tensor([ids], device=lm.device), use_cache=False).logits[0]
        found.append(logits.float().log_softmax(-1).cpu())
    lm.train(was_training)
    return found


@contextmanager
def read_back(place: Path, sample: Sample) -> Iterator[Path]:
    """A draft of a folder to fill, which is put in place once what is loaded from it gives the sample.

    A folder that is there already keeps its other files.

    Raises:
        RunStoreError: what was written is another model, or the folder has files of one; nothing has changed.
        OSError: it cannot be written.
    """
    make_folder(place.parent)
    draft = draft_folder(place.parent)
    try:
        yield draft
        _require_same(draft, place, sample)
        if not place.exists():
            os.replace(draft, place)
            return
        _require_room(draft, place)
        for file in draft.iterdir():
            os.replace(file, place / file.name)
    finally:
        discard(draft)


def require_same_in_memory(lm: Any, sample: Sample, why: str) -> None:
    """Raises RunStoreError if a model in memory, that was made of the sampled one, does not give the sample."""
    difference = sample.difference(lm)
    if difference > TOLERANCE:
        raise RunStoreError(f"Nothing was written: {why} {_far(difference)}.")


def _require_room(draft: Path, place: Path) -> None:
    """Refuse a folder in which files of another model would stay, and be loaded."""
    for pattern in WEIGHTS:
        for file in place.glob(pattern):
            if not (draft / file.name).exists():
                raise RunStoreError(
                    f"{place} has a file of another model, {file.name}, which would be loaded together with this one: "
                    "name another folder."
                )


def _require_same(draft: Path, place: Path, sample: Sample) -> None:
    """Load what is in a draft, and raise RunStoreError if it does not give the sample."""
    refused = f"Nothing was written to {place}: what is loaded from there"
    if (draft / ADAPTER).is_file() and not json.loads(file_content(draft / ADAPTER)).get(BASE):
        raise RunStoreError(
            f"Nothing was written to {place}: the adapter is on a model that was made in memory, so nobody could load "
            "it again; save that model, and put the adapter on what is loaded from its folder."
        )
    try:
        lm = _loaded(draft, sample).to(sample.device)
        tokenizer = AutoTokenizer.from_pretrained(draft, local_files_only=True)
    except Exception as error:  # of transformers, PEFT or safetensors
        reason = " ".join(str(error).split())[:300]
        raise RunStoreError(
            f"Nothing was written to {place}: it cannot be loaded again ({type(error).__name__}: {reason})."
        ) from error
    if _ids(tokenizer, sample.texts) != sample.prompts[: len(sample.texts)]:
        raise RunStoreError(f"{refused} has a tokenizer that divides a text otherwise.")
    difference = sample.difference(lm)
    if difference > TOLERANCE:
        raise RunStoreError(f"{refused} {_far(difference)}; {_cause(lm)}.")


def _loaded(folder: Path, sample: Sample) -> Any:
    options: dict[str, Any] = {"dtype": sample.dtype, "local_files_only": True}
    if not (folder / ADAPTER).is_file():
        return AutoModelForCausalLM.from_pretrained(folder, **options)
    if sample.quantization is not None:
        options["quantization_config"] = sample.quantization
    return AutoModelForCausalLMWithValueHead.from_pretrained(folder, **options).pretrained_model


def _far(difference: float) -> str:
    if difference == float("inf"):
        return "has another vocabulary, or no finite numbers"
    return f"differs from what was trained by {difference:.2g} nats"


def _cause(lm: Any) -> str:
    """Why what was loaded may be another model than the one that was written."""
    base = getattr(lm.config, "name_or_path", "") or "its base model"
    if hasattr(lm, "peft_config"):
        return (
            f"an adapter is on the weights of {base}, and those that it was trained on are others (changed, resized or "
            "of another type): merge it into them and save the whole model"
        )
    return "some of its weights have no place of their own in the files, as of a head that is tied to the embeddings"
