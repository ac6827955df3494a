"""Compares an exported model with the model in memory before the export gets its name."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from llamagym_tui.engine.model.value_head import AutoModelForCausalLMWithValueHead
from llamagym_tui.errors import RunStoreError, described
from llamagym_tui.user_files import discard, draft_folder, make_folder

TOLERANCE = 1e-3
"""Largest difference of a log-probability, in nats: more than rounding in float32, less than any training."""
MOST_IDS = 256
"""Ids of a text that are compared."""
ADAPTER = "adapter_config.json"


@torch.no_grad()
def logprobs_of(lm: Any, tokenizer: Any, texts: Sequence[str]) -> list[Tensor]:
    """(T, V) log-probabilities for each text, in float32 on the host."""
    lm.eval()
    found = []
    for text in texts:
        ids = tokenizer(text)["input_ids"][:MOST_IDS] or [0]
        logits = lm(torch.tensor([ids], device=lm.device), use_cache=False).logits[0]
        found.append(logits.float().log_softmax(-1).cpu())
    return found


def require_same(trained: Sequence[Tensor], now: Sequence[Tensor], where: str) -> None:
    """Raises RunStoreError if a model gives other log-probabilities than the trained one."""
    for ours, theirs in zip(trained, now, strict=True):
        if ours.shape != theirs.shape or not torch.allclose(ours, theirs, 0, TOLERANCE):
            raise RunStoreError(
                f"Nothing was written: {where} is not the model that was trained. If its base model was changed "
                "in memory, merge the adapter with --merge."
            )


@contextmanager
def read_back(place: Path, texts: Sequence[str], trained: Sequence[Tensor]) -> Iterator[Path]:
    """A draft folder to fill, which becomes `place` once the model loaded from it agrees with the trained one.

    Raises:
        RunStoreError: the draft cannot be loaded, or holds another model; nothing is left of it.
        OSError: it cannot be written.
    """
    make_folder(place.parent)
    draft = draft_folder(place.parent)
    try:
        yield draft
        options: Any = {"dtype": trained[0].dtype, "local_files_only": True}
        try:
            if (draft / ADAPTER).is_file():
                adapted = AutoModelForCausalLMWithValueHead.from_pretrained(draft, **options)
                lm = adapted.pretrained_model
            else:
                lm = AutoModelForCausalLM.from_pretrained(draft, **options)
            now = logprobs_of(
                lm, AutoTokenizer.from_pretrained(draft, local_files_only=True), texts
            )
        except Exception as error:  # of transformers, PEFT or safetensors
            raise RunStoreError(
                f"Nothing was written to {place}: it cannot be loaded again ({described(error)})."
            ) from error
        require_same(trained, now, "what is loaded from there")
        os.replace(draft, place)
    finally:
        discard(draft)
