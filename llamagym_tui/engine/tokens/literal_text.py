"""Text that stays text: what an environment or a user writes never becomes a control token.

Spellings of special tokens in a message (``<|im_end|>`` in an observation) are hidden from the chat template and from
the tokenizer by placeholders that nobody can guess; the template's own control tokens get aliases in a copy of the
tokenizer, in which the spellings mean nothing. Text without such spellings is left as it is.
"""

import json
import re
import secrets
from collections.abc import Collection
from functools import cached_property
from typing import Any

import tokenizers

_INVISIBLE = "\u200b"
"""Breaks a spelling where a tokenizer is not of the `tokenizers` library and cannot be copied with aliases."""


class LiteralText:
    def __init__(self, tokenizer: Any, ends: Collection[int] = ()) -> None:
        """`ends`: ids that end a reply, which need not be special."""
        added = tokenizer.added_tokens_decoder
        texts = {
            *(str(token) for i, token in added.items() if token.special or i in ends),
            *map(str, tokenizer.all_special_tokens),
        }
        spellings = sorted((text for text in texts if text), key=lambda text: (-len(text), text))
        nonce = secrets.token_hex(8)
        self._backend = getattr(tokenizer, "backend_tokenizer", None)
        self._aliases = {text: f"<{nonce}.{index}>" for index, text in enumerate(spellings)}
        self._placeholders = {text: f"<{nonce}-{index}>" for index, text in enumerate(spellings)}
        self._spelled = {placeholder: text for text, placeholder in self._placeholders.items()}
        self._nonce = nonce
        self._spelling = re.compile("|".join(map(re.escape, spellings)) or r"(?!)")
        self._placeholder = re.compile("|".join(map(re.escape, self._spelled)) or r"(?!)")

    def hide(self, text: str) -> str:
        """The text with a placeholder for every spelling of a special token."""
        if self._backend is None:
            return self._spelling.sub(
                lambda found: f"{found[0][0]}{_INVISIBLE}{found[0][1:]}", text
            )
        return self._spelling.sub(lambda found: self._placeholders[found[0]], text)

    def hides(self, rendered: str) -> bool:
        return self._nonce in rendered

    def ids(self, rendered: str) -> list[int]:
        """Ids of a rendered conversation: the template's special tokens as such, hidden spellings as plain text."""
        aliased = self._spelling.sub(lambda found: self._aliases[found[0]], rendered)
        copy, own_ids = self._copy
        spelled = self._placeholder.sub(lambda found: self._spelled[found[0]], aliased)
        ids = copy.encode(spelled, add_special_tokens=False).ids
        return [own_ids.get(token, token) for token in ids]

    @cached_property
    def _copy(self) -> tuple[tokenizers.Tokenizer, dict[int, int]]:
        """The tokenizer with aliases for its special tokens, and its own id of each of the copy's added tokens."""
        state = json.loads(self._backend.to_str())  # type: ignore[union-attr]
        model = state["model"]
        if isinstance(model["vocab"], dict):
            model["vocab"] = {
                self._aliases.get(text, text): token for text, token in model["vocab"].items()
            }
        else:
            model["vocab"] = [
                [self._aliases.get(text, text), score] for text, score in model["vocab"]
            ]
        if model.get("unk_token"):
            model["unk_token"] = self._aliases.get(model["unk_token"], model["unk_token"])
        for token in state["added_tokens"]:
            token["content"] = self._aliases.get(token["content"], token["content"])
        state["post_processor"] = None
        copy = tokenizers.Tokenizer.from_str(json.dumps(state))
        vocabulary = copy.get_vocab()
        own_ids = {token["content"]: token["id"] for token in state["added_tokens"]}
        return copy, {vocabulary[text]: token for text, token in own_ids.items()}
