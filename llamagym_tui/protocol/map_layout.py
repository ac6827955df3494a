"""The layout of a policy map: the records of `events.PolicyMapLaidOut`."""

from msgspec import Struct


class MapCell(Struct, frozen=True, kw_only=True):
    """A field of a panel."""

    words: str = ""
    """The state in the agent's words, or what the landmark is; empty: nothing is there."""
    sign: str = ""
    """The character of a landmark; empty: the field is a state, or nothing."""
    action: int | None = None
    """The action that the field stands for; None: it stands for the state."""
    best: list[int] = []
    """Best actions, by index; empty: nobody knows."""
    ground: str = ""
    """The ground of a landmark, by a name of `llamagym_tui.game.pieces`."""
    has_wall: bool = False
    """True if a wall stands on its right."""

    @property
    def is_state(self) -> bool:
        """True if the policy is evaluated in it."""
        return bool(self.words) and not self.sign


class MapPanel(Struct, frozen=True, kw_only=True):
    """Fields in rows and columns.

    A `Panel` of `llamagym_tui.game.policy_map` has the same labels. It is what an agent's own code returned, with
    observations of any kind, so it cannot cross the wire; this is what was checked of it, and laid out.
    """

    title: str
    row_name: str
    column_name: str
    rows: list[str]
    columns: list[str]
    cells: list[list[MapCell]]
    """Row by row."""
