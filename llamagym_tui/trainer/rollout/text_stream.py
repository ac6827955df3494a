"""Streams the text of a reply while its tokens come: pieces that join to the whole, never half a character."""

from collections.abc import Callable, Sequence


class TextStream:
    """Turns tokens into text as far as they are complete."""

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._ids: list[int] = []
        self._shown = ""

    def push(self, token: int) -> str:
        """The new text after one more token; empty while a character is unfinished."""
        self._ids.append(token)
        text = self._decode(self._ids)
        if text.endswith("\N{REPLACEMENT CHARACTER}") or not text.startswith(self._shown):
            return ""
        new, self._shown = text[len(self._shown) :], text
        return new
