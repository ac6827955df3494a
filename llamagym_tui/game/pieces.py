"""What `Agent.draw` may return: text, or lines of pieces, each on a ground by which people tell fields apart.

A ground is named by what it means, and each theme has a colour for it. Terminals without colours show the text alone,
so what a field is has to be seen by its text, too.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

Ground = Literal["", "floor", "ice", "danger", "goal", "wall", "thing", "player", "card", "back"]
"""What a piece stands on: ground that one walks on, what ends an episode badly or well, what can be fetched or used,
the player's own field, the face of a card and its back. Empty: nothing."""


class Piece(NamedTuple):
    """Some text of a drawing, on one line."""

    text: str
    ground: Ground = ""


Line = str | Piece | Sequence[str | Piece]
Drawing = str | Sequence[Line]
