"""The policy maps of two prompts beside each other: what A does, what B does, and where B does something else."""

from collections.abc import Iterator, Sequence
from functools import partial

from msgspec.structs import replace
from textual.app import App
from textual.content import Content

from llamagym_tui.protocol.events import PolicyMapLaidOut, PolicyMapped
from llamagym_tui.screens.policy_map.drawing import map_line, places_for
from llamagym_tui.screens.policy_map.mapped_policy import (
    MappedPolicy,
    changed_choices,
    play_changes,
)
from llamagym_tui.screens.policy_map.screen import cell_style

BETWEEN = 3
"""Columns between two maps."""
MOST_LINES = 20
"""Lines of a map."""


def compared_maps(
    app: App[object],
    layout: PolicyMapLaidOut | None,
    maps: Sequence[PolicyMapped],
    width: int,
) -> Iterator[Content]:
    """The play of A and B over the states of the map in sentences, then their maps in lines of a width."""
    if layout is None or len(maps) != 2:
        return
    a, b = [MappedPolicy(layout, each) for each in maps]
    for name, policy in zip("AB", (a, b), strict=True):
        if policy.words:
            yield Content(f"{name}  {policy.words}")
    yield Content(f"From A to B {play_changes(a, b)}.")
    yield Content()
    yield from _beside(app, {"A": a, "B": b, "where B differs": where_it_differs(a, b)}, width)


def where_it_differs(a: MappedPolicy, b: MappedPolicy) -> MappedPolicy:
    """The second policy in the states in which it prefers another action; the others are not known."""
    changed = {a.cells[spot].cell.words for spot in changed_choices(a, b)}
    shares = [[*cell.shares] if words in changed else [] for words, cell in b.states.items()]
    return MappedPolicy(b.layout, PolicyMapped(update=0, prompt_version=0, shares=shares))


def _beside(app: App[object], policies: dict[str, MappedPolicy], width: int) -> Iterator[Content]:
    """Maps beside each other, each under its name and as wide as the others."""
    layout = replace(next(iter(policies.values())).layout, shows_one=False)
    places = places_for(layout, width // len(policies) - BETWEEN, MOST_LINES)
    step = places.width + BETWEEN
    yield Content.styled("".join(name.ljust(step) for name in policies), "bold")
    for y in range(places.height):
        line = Content()
        for at, policy in enumerate(policies.values()):
            line = line.pad_right(at * step - line.cell_length)
            for piece in map_line(policy, places, y, partial(cell_style, app)):
                line += Content.styled(piece.text, piece.style)
        yield line
