"""Compares an exported model with the model in memory before the export gets its name."""

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
from llamagym_tui.user_files import discard, draft_folder, make_folder

TOLERANCE = 1e-3
"""Largest difference of a log-probability, in nats: more than rounding in float32, less than any training."""
MOST_IDS = 256
"""Ids of a text that are compared."""
ADAPTER = "adapter_config.json"


class Sample(NamedTuple):
    """The log-probabilities that a model in memory gives some prompts."""

    prompts: list[list[int]]
    logprobs: list[Tensor]
    """(T, V) for each prompt, in float32 on the host."""
    texts: Sequence[str]

    @classmethod
    def of(cls, lm: Any, tokenizer: Any, texts: Sequence[str]) -> Self:
        prompts = _ids(tokenizer, texts)
        return cls(prompts, _logprobs(lm, prompts), texts)

    def require(self, lm: Any, where: str) -> None:
        """Raises RunStoreError if another model gives other log-probabilities."""
        for ours, theirs in zip(self.logprobs, _logprobs(lm, self.prompts), strict=True):
            is_same = ours.shape == theirs.shape and torch.allclose(ours, theirs, 0, TOLERANCE)
            if not is_same:
                raise RunStoreError(
                    f"Nothing was written: {where} is not the model that was trained. If its base model was changed "
                    "in memory, merge the adapter with --merge."
                )


@contextmanager
def read_back(place: Path, sample: Sample) -> Iterator[Path]:
    """A draft folder to fill, which becomes `place` once the model loaded from it gives the sample.

    Raises:
        RunStoreError: the draft cannot be loaded, or holds another model; nothing is left of it.
        OSError: it cannot be written.
    """
    make_folder(place.parent)
    draft = draft_folder(place.parent)
    try:
        yield draft
        try:
            lm = _loaded(draft, sample.logprobs[0].dtype)
            tokenizer = AutoTokenizer.from_pretrained(draft, local_files_only=True)
        except Exception as error:  # of transformers, PEFT or safetensors
            reason = " ".join(str(error).split())[:300]
            raise RunStoreError(
                f"Nothing was written to {place}: it cannot be loaded again ({reason})."
            ) from error
        if _ids(tokenizer, sample.texts) != sample.prompts:
            raise RunStoreError(f"Nothing was written to {place}: its tokenizer differs.")
        sample.require(lm, "what is loaded from there")
        os.replace(draft, place)
    finally:
        discard(draft)


def _ids(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """Ids of texts, none of them empty."""
    return [tokenizer(text)["input_ids"][:MOST_IDS] or [0] for text in texts]


@torch.no_grad()
def _logprobs(lm: Any, prompts: Sequence[Sequence[int]]) -> list[Tensor]:
    lm.eval()
    found = []
    for ids in prompts:
        logits = lm(torch.tensor([ids], device=lm.device), use_cache=False).logits[0]
        found.append(logits.float().log_softmax(-1).cpu())
    return found


def _loaded(folder: Path, dtype: torch.dtype) -> Any:
    if (folder / ADAPTER).is_file():
        model = AutoModelForCausalLMWithValueHead.from_pretrained(
            folder, dtype=dtype, local_files_only=True
        )
        return model.pretrained_model
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True)
