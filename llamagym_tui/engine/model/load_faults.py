"""Why a model does not load, in one sentence, and before much was downloaded or read."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import huggingface_hub

from llamagym_tui.engine.model.hub import INSTEAD
from llamagym_tui.errors import ModelLoadError

Shapes = Mapping[str, tuple[int, ...]]
"""The shapes of weights by their names."""


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
    """Refuse a model of which not all weights were read, or in whose files there are others.

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


def require_whole_adapter(path: Path, saved: Shapes, wanted: Shapes) -> None:
    """Refuse an adapter whose file has other weights than its settings ask for on this base model.

    Args:
        path: of its folder.
        saved: the weights in its file.
        wanted: those that its settings ask for.
    Raises:
        ModelLoadError: weights are missing, or left over, or of another shape.
    """
    adapter = f"The adapter in {str(path)!r}"
    advice = (
        "take the adapter's own settings and the base model that it was trained on, with --base"
    )
    faults = []
    if lacking := sorted(wanted.keys() - saved.keys()):
        faults.append(f"lacks {_listed(lacking)}")
    if left_over := sorted(saved.keys() - wanted.keys()):
        faults.append(f"has {_listed(left_over)}, which no module of its base model takes")
    if faults:
        raise ModelLoadError(f"{adapter} {', and '.join(faults)}: {advice}.")
    for name, shape in saved.items():
        if shape != wanted[name]:
            raise ModelLoadError(
                f"{adapter} has {name} in the shape {shape}, and its settings and its base model ask for "
                f"{wanted[name]}: {advice}."
            )


def require_rows(name: str, tokenizer: Any, rows: int) -> None:
    """Refuse a tokenizer by which a prompt may have a token that the model has no row for.

    A special token that no template writes does no harm: spelled out in a message it stays text.

    Raises:
        ModelLoadError: there is such a token, in the chat template, in the text, or as an end of texts.
    """
    beyond = {token: each for token, each in tokenizer.get_vocab().items() if each >= rows}
    if not beyond:
        return
    written = _written_by_template(tokenizer)
    special = {str(each) for each in tokenizer.added_tokens_decoder.values() if each.special}
    special |= set(map(str, tokenizer.all_special_tokens))
    named = {tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token, tokenizer.unk_token}
    for token, each in sorted(beyond.items(), key=lambda item: item[1]):
        if token in named or token not in special or token in written:
            raise ModelLoadError(
                f"The tokenizer of model {name!r} has {1 + max(beyond.values()):,} tokens and the model {rows:,} rows "
                f"of embeddings, so there is none for {token!r} ({each:,}): call resize_token_embeddings, train it and "
                "save it, or take the model's own tokenizer."
            )


def _written_by_template(tokenizer: Any) -> str:
    """The chat template, and what it makes of a conversation; a template may put its tokens together."""
    template = tokenizer.chat_template
    if not isinstance(template, str):
        return str(template or "")
    conversation = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": "three"},
    ]
    written = template
    for messages in (conversation, [{"role": "system", "content": "none"}, *conversation]):
        try:
            written += tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True
            )
        except Exception:  # of a template, which may refuse a system message
            continue
    return written


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
    """Whether a folder has files of a tokenizer, of whatever kind."""
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
