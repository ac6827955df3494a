"""One sentence for each reason why a model does not load."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from llamagym_tui.errors import ModelLoadError, described

INSTEAD = "or use --model bundled"


def is_causal(kinds: Iterable[str]) -> bool:
    """True if one of these classes has an LM head."""
    return any(part in kind for kind in kinds for part in ("CausalLM", "LMHead", "Conditional"))


def require_causal_lm(name: str, config: Any) -> None:
    """Refuse an architecture that transformers would load with an LM head of random weights, or half of it."""
    kinds = config.architectures or []
    if getattr(config, "is_encoder_decoder", False) or (kinds and not is_causal(kinds)):
        raise ModelLoadError(
            f"Model {name!r} is no causal language model: choose one that continues a text, {INSTEAD}."
        )


def require_all_weights(model: str, found: Mapping[str, Any]) -> None:
    """Refuse a model with missing or surplus weights.

    Args:
        model: the subject of the message.
        found: the loading information of transformers.
    Raises:
        ModelLoadError: weights are missing, which transformers draws at random, or left over, or of another shape.
    """
    faults = {
        "lacks": sorted(found["missing_keys"]),
        "has no place for": sorted(found["unexpected_keys"]),
        "has another shape of": sorted(name for name, *_ in found["mismatched_keys"]),
    }
    for fault, names in faults.items():
        if names:
            raise ModelLoadError(
                f"{model} {fault} the weight {names[0]} ({len(names)} in all): take the weights and the configuration "
                "of one model."
            )


def require_rows(name: str, tokenizer: Any, rows: int) -> None:
    """Refuse a tokenizer with tokens beyond the model's embeddings.

    A special token that no template writes does no harm: spelled out in a message it stays text.
    """
    beyond = {token: each for token, each in tokenizer.get_vocab().items() if each >= rows}
    written = str(tokenizer.chat_template or "")
    special = {str(each) for each in tokenizer.added_tokens_decoder.values() if each.special}
    named = {tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token, tokenizer.unk_token}
    for token in beyond:
        if token in named or token not in special or token in written:
            raise ModelLoadError(
                f"The tokenizer of model {name!r} has {1 + max(beyond.values()):,} tokens and the model {rows:,} rows "
                f"of embeddings, so there is none for {token!r}: call resize_token_embeddings, train it and save it, "
                "or take the model's own tokenizer."
            )


def sentence(name: str, path: Path | None, error: Exception) -> str:
    """One sentence about a model that did not load; `path` is its folder, None if it comes from a hub."""
    text = f"{type(error).__name__} {error}".lower()
    model = f"Model {name!r}" if path is None else f"The model in {str(path)!r}"
    if "gated" in text and path is None:
        return f"{model} is gated: ask for access on its hub page and set HF_TOKEN, {INSTEAD}."
    if "trust_remote_code" in text or "custom code" in text:
        return f"{model} needs code of its own, which is never run here: choose one that transformers has, {INSTEAD}."
    return f"{model} does not load: {described(error)}."
