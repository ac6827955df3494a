"""The policy maps of two prompts beside each other: what A does, what B does, and where B does something else."""

from collections.abc import Iterator, Sequence
from functools import partial

from msgspec.structs import replace
from textual.app import App
from textual.content import Content
from textual.style import Style

from llamagym_tui.protocol.events import PolicyMapLaidOut, PolicyMapped
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.policy_map.drawing import map_line, places_for
from llamagym_tui.screens.policy_map.mapped_policy import (
    MappedCell,
    MappedPolicy,
    Spot,
    changed_choices,
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
    yield Content(difference(a, b))
    yield Content()
    yield from _beside(app, {"A": a, "B": b, "where B differs": where_it_differs(a, b)}, width)


def difference(a: MappedPolicy, b: MappedPolicy) -> str:
    """The number of states in which B prefers another action, and the action that it prefers more often."""
    changed = len(changed_choices(a, b))
    noun = one_line(a.layout.noun) or "states"
    if not changed:
        return f"B prefers the same action in all {noun}."
    text = f"B prefers another action in {changed:,} of {sum(b.choices.values()):,} {noun}"
    gains = {action: b.choices[action] - a.choices[action] for action in b.choices}
    action = max(gains, key=gains.__getitem__)
    if gains[action] <= 0:
        return f"{text}."
    return f"{text}: {one_line(a.layout.action_names[action])} in {gains[action]:,} more than A."


def where_it_differs(a: MappedPolicy, b: MappedPolicy) -> MappedPolicy:
    """The second policy in the states in which it prefers another action; the others are not known."""
    changed = {a.cells[spot].cell.words for spot in changed_choices(a, b)}
    shares = [[*cell.shares] if words in changed else [] for words, cell in b.states.items()]
    return MappedPolicy(b.layout, PolicyMapped(update=0, prompt_version=0, shares=shares))


def _beside(app: App[object], policies: dict[str, MappedPolicy], width: int) -> Iterator[Content]:
    """Maps beside each other, each under its name and as wide as the others."""
    column = (width - BETWEEN * (len(policies) - 1)) // len(policies)
    layout = next(iter(policies.values())).layout
    places = places_for(replace(layout, shows_one=False), column, MOST_LINES)
    step = places.width + BETWEEN
    heading = "".join(name[: step - 1].ljust(step) for name in policies)
    yield Content.styled(heading, "bold")
    style_of = partial(_style_of, app)
    for y in range(places.height):
        line = Content()
        for at, policy in enumerate(policies.values()):
            line = line.pad_right(at * step - line.cell_length)
            for piece in map_line(policy, places, y, style_of):
                line += Content.styled(piece.text, piece.style)
        yield line


def _style_of(app: App[object], spot: Spot, cell: MappedCell, warmth: float | None) -> Style:
    return cell_style(app, cell, warmth)
