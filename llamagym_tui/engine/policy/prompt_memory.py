"""What a forward after a prompt gave, as long as the policy is the same: equal prompts are computed once.

It holds hidden states, for the last token of a prompt and the tree of admissible replies behind it, and no keys or
values: those are in `llamagym_tui.engine.policy.known_tokens`.
"""

from collections.abc import Callable, Sequence

from llamagym_tui.engine.model.forward import Encoded
from llamagym_tui.engine.tokens.token_tree import TokenTree

REMEMBERED = 64 * 2**20
"""Bytes held at most; once they are full, all are let go."""
Key = tuple[TokenTree, tuple[int, ...], tuple[int, ...]] | int
"""Tree behind a prompt, prefix and ids after it."""


class PromptMemory:
    def __init__(self) -> None:
        self._known: dict[Key, Encoded] = {}
        self._bytes = 0
        self._looked_up = self._met = 0

    def take_share(self) -> float:
        """Share of the prompts with trees since the last call that needed no forward of their own; 0 without any."""
        share = self._met / max(self._looked_up, 1)
        self._looked_up = self._met = 0
        return share

    def clear(self) -> None:
        self._known.clear()
        self._bytes = 0

    def rows(self, keys: Sequence[Key], compute: Callable[[list[int]], Encoded]) -> Encoded:
        """One row for each of B prompts.

        Args:
            keys: equal for equal prompts; a number for one that is computed in any case, and not remembered.
            compute: rows for the prompts of these indices, ascending.
        """
        found = {key: self._known[key] for key in keys if key in self._known}
        new: dict[Key, int] = {}
        for index, key in enumerate(keys):
            if key not in found:
                new.setdefault(key, index)
        counts = [sum(not isinstance(key, int) and len(key[0]) > 0 for key in each) for each in (keys, new)]
        self._looked_up += counts[0]
        self._met += counts[0] - counts[1]
        if new:
            made = dict(zip(new, compute(list(new.values())).rows(), strict=True))
            found |= made
            self._remember({key: row for key, row in made.items() if not isinstance(key, int)})
        return Encoded.stacked([found[key] for key in keys])

    def _remember(self, made: dict[Key, Encoded]) -> None:
        size = sum(row.bytes for row in made.values())
        if self._bytes + size > REMEMBERED:
            self.clear()
        if size <= REMEMBERED:
            self._known |= made
            self._bytes += size
