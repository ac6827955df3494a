"""One sentence for each reason why a model does not load."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import huggingface_hub

from llamagym_tui.engine.model.hub import INSTEAD
from llamagym_tui.errors import ModelLoadError


def require_causal_lm(name: str, config: Any) -> None:
    """Raises ModelLoadError for what transformers would load with an LM head of random weights, or half of it."""
    kinds = config.architectures or []
    has_head = any(
        part in kind for kind in kinds for part in ("CausalLM", "LMHead", "ConditionalGeneration")
    )
    if getattr(config, "is_encoder_decoder", False) or (kinds and not has_head):
        kind = ", ".join(kinds) or type(config).__name__
        raise ModelLoadError(
            f"Model {name!r} is no causal language model ({kind}): choose one that writes text on from text, {INSTEAD}."
        )


def require_all_weights(model: str, found: Mapping[str, Any]) -> None:
    """Refuse a model with missing or surplus weights.

    Args:
        model: it, as a sentence begins with it.
        found: what transformers says about the loading.
    Raises:
        ModelLoadError: weights are missing, which transformers draws at random, or left over, or of another shape.
    """
    for name, its_own, wanted in sorted(found["mismatched_keys"]):
        raise ModelLoadError(
            f"{model} has {name} in the shape {tuple(its_own)}, and its configuration asks for {tuple(wanted)}: take "
            "the weights and the configuration of one model."
        )
    lacking = sorted(found["missing_keys"])
    left_over = sorted(found["unexpected_keys"])
    faults = []
    if lacking:
        faults.append(f"lacks {_listed(lacking)}, which would be drawn at random")
    if left_over:
        faults.append(f"has {_listed(left_over)}, which its configuration has no place for")
    if faults:
        raise ModelLoadError(
            f"{model} {', and '.join(faults)}: take the weights and the configuration of one model."
        )


def require_rows(name: str, tokenizer: Any, rows: int) -> None:
    """Refuse a tokenizer with tokens beyond the model's embeddings.

    A special token that no template writes does no harm: spelled out in a message it stays text.

    Raises:
        ModelLoadError: there is such a token, in the chat template, in the text, or as an end of texts.
    """
    beyond = {token: each for token, each in tokenizer.get_vocab().items() if each >= rows}
    written = str(tokenizer.chat_template or "")
    special = {str(each) for each in tokenizer.added_tokens_decoder.values() if each.special}
    named = {tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token, tokenizer.unk_token}
    for token, each in beyond.items():
        if token in named or token not in special or token in written:
            raise ModelLoadError(
                f"The tokenizer of model {name!r} has {1 + max(beyond.values()):,} tokens and the model {rows:,} rows "
                f"of embeddings, so there is none for {token!r} ({each:,}): call resize_token_embeddings, train it and "
                "save it, or take the model's own tokenizer."
            )


def _listed(names: list[str]) -> str:
    """The first of some names of weights, and how many others there are."""
    others = len(names) - 1
    if not others:
        return f"the weight {names[0]}"
    return f"the weights {names[0]} and {others} other{'s' if others > 1 else ''}"


def only_pickled(folder: Path) -> ModelLoadError | None:
    """The error for a folder that has weights, but not as safetensors; None: it has none."""
    pickles = sorted(file.name for kind in ("*.bin", "*.pt", "*.pth") for file in folder.glob(kind))
    if not pickles:
        return None
    return ModelLoadError(
        f"The model in {str(folder)!r} has no safetensors but {pickles[0]}, which may run code when it is read: "
        "load it where you trust it, write it again with save_pretrained, and use that folder."
    )


def has_tokenizer(folder: Path) -> bool:
    """True for a folder with a tokenizer of any kind."""
    return any(
        next(folder.glob(kind), None) for kind in ("tokenizer*", "vocab*", "*.model", "*.tiktoken")
    )


def sentence(name: str, path: Path | None, error: Exception) -> str:
    """One sentence about a model that did not load; `path` is its folder, None if it comes from a hub."""
    text = f"{type(error).__name__} {error}".lower()
    model = f"Model {name!r}" if path is None else f"The model in {str(path)!r}"
    if "gated" in text and path is None:
        if huggingface_hub.get_token():
            return f"{model} is gated and the token here gives no access: ask for it on its hub page, {INSTEAD}."
        return f"{model} is gated: ask for access on its hub page and set HF_TOKEN, {INSTEAD}."
    if "trust_remote_code" in text or "custom code" in text:
        return f"{model} needs code of its own, which is never run here: choose one that transformers has, {INSTEAD}."
    if "unrecognized configuration class" in text:
        return f"{model} is no causal language model: choose one that writes text on from text, {INSTEAD}."
    if path is not None:
        return f"{model} does not load: {_in_one_line(error)}"
    if "safetensors" in text:
        return f"{model} has no safetensors, and nothing else is read: choose another, {INSTEAD}."
    if "not a valid model identifier" in text or "repository not found" in text:
        return (
            f"There is no model {name!r} on the hub, or it is private: check its name, {INSTEAD}."
        )
    return f"{model} does not load ({_in_one_line(error)}): check its name, {INSTEAD}."


def _in_one_line(error: Exception, limit: int = 200) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= limit else text[:limit] + "…"
