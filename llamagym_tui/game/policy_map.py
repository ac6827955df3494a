"""What `Agent.policy_map` returns: states in which the policy is evaluated, as they are laid out for people."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple


class Landmark(NamedTuple):
    """A field of a panel on which nobody acts: a hole, the goal."""

    sign: str
    """One character."""
    name: str
    """What it is, in a word or two."""


class Panel(NamedTuple):
    """States in rows and columns."""

    title: str
    rows: Sequence[str]
    """Label of each row, from the top; short."""
    columns: Sequence[str]
    """Label of each column; short."""
    states: Sequence[Sequence[Any]]
    """Row by row: an observation, a `Landmark`, or None where there is nothing."""
    row_name: str = ""
    """What the rows are: ``your total``."""
    column_name: str = ""
    """What the columns are: ``dealer shows``."""


class PolicyMap(NamedTuple):
    """Panels of states, and how they are drawn."""

    panels: Sequence[Panel]
    action: int | None = None
    """The action whose probability is drawn as a heat map. None: the most probable action is drawn, by its sign."""
    signs: Sequence[str] = ()
    """A character for each action; empty: the first letters of their names, or their numbers."""
    best: Callable[[Any], Collection[int]] | None = None
    """All best actions on an observation. None: the one of `Agent.expert`, if there is one; it is called the expert's
    unless the agent has a baseline named ``optimal``."""
    like: str = ""
    """Who plays so, for people: ``the book``; empty: the expert, or optimal play."""
    noun: str = ""
    """What the states are: ``hands``; empty: states."""
