"""The memory of what the model said after a prompt.

It holds for one version of the trained weights. Where only an adapter on the head is trained, that is for ever, so
rollout, update, evaluation and policy map read each prompt once in a run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llamagym_tui.engine.model.forward import Encoded
from llamagym_tui.engine.tokens.token_tree import TokenTree
from llamagym_tui.engine.tokens.tokenization import Opening

Key = tuple[TokenTree, Opening]
"""A prompt, and the tree of replies behind it."""


class PromptMemory:
    """Results of forwards by prompt, up to a number of bytes. A full memory is emptied."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._known: dict[Key, Encoded] = {}
        self._bytes = 0
        self._looked_up = 0
        self._found = 0

    def take_share(self) -> float:
        """Fraction of the prompts since the last call that needed no forward; 0 without any."""
        share = self._found / max(self._looked_up, 1)
        self._looked_up = 0
        self._found = 0
        return share

    def clear(self) -> None:
        self._known.clear()
        self._bytes = 0

    def rows(
        self,
        keys: Sequence[Key],
        compute: Callable[[list[int]], list[Encoded]],
        is_whole: Callable[[Encoded], bool],
    ) -> Encoded:
        """One row for each of B prompts.

        Args:
            keys: of the prompts.
            compute: gives rows for the prompts at these indices.
            is_whole: False for a remembered row that must be computed again.
        """
        found = {
            key: self._known[key]
            for key in keys
            if key in self._known and is_whole(self._known[key])
        }
        new: dict[Key, int] = {}
        for index, key in enumerate(keys):
            if key not in found:
                new.setdefault(key, index)
        self._looked_up += len(keys)
        self._found += len(keys) - len(new)
        if new:
            made = dict(zip(new, compute(list(new.values())), strict=True))
            found |= made
            self._remember(made)
        return Encoded.stacked([found[key] for key in keys])

    def _remember(self, made: dict[Key, Encoded]) -> None:
        size = sum(row.bytes for row in made.values())
        if self._bytes + size > self._most_bytes:
            self.clear()
        if size <= self._most_bytes:
            self._known |= made
            self._bytes += size
