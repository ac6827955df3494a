"""What `Agent.policy_map` returns: states in which the policy is evaluated, and how they are laid out for people."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from llamagym_tui.game.pieces import Ground


class Landmark(NamedTuple):
    """A field of a panel on which no action is taken: a hole, the goal."""

    sign: str
    """One character."""
    name: str
    """What it is, in a word or two."""
    ground: Ground = ""
    """What it stands on, for its colour."""


class Panel(NamedTuple):
    """States in rows and columns."""

    title: str
    rows: Sequence[str]
    """Short labels of the rows, from the top."""
    columns: Sequence[str]
    """Short labels of the columns."""
    states: Sequence[Sequence[Any]]
    """For each field, row by row: an observation, a `Landmark`, or None if there is nothing."""
    row_name: str = ""
    """What the rows are: ``your total``."""
    column_name: str = ""
    """What the columns are: ``dealer shows``."""
    walls: Collection[tuple[int, int]] = ()
    """Index of row and column of each field that has a wall on its right."""


class PolicyMap(NamedTuple):
    """Panels of states, and how they are drawn."""

    panels: Sequence[Panel]
    action: int | None = None
    """The action whose probability is drawn as a heat map. None: the most probable action is drawn, by its sign."""
    signs: Sequence[str] = ()
    """A character for each action; empty: the first letters of their names, or their numbers."""
    best: Callable[[Any], Collection[int]] | None = None
    """A function from an observation to all best actions. None: the action of `Agent.expert` is the best, if there is
    an expert; people then read of the expert, or of optimal play if the agent has a baseline named ``optimal``."""
    like: str = ""
    """What people read of who plays like that, instead of the expert or optimal play: ``the book``."""
    noun: str = ""
    """What people call the states: ``hands``; empty: states."""
