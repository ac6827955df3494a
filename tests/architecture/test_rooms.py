"""The house stays readable: few rooms, few arrows between them, no circles.

The limits grew once, for the rollouts of others; else they shrink.
"""

from __future__ import annotations

from scripts.house import arrows, circles, module_graph, modules, rooms

MOST_ROOMS = 23
MOST_ARROWS = 114


def test_rooms_and_arrows_are_few_and_there_is_no_circle() -> None:
    graph = module_graph(modules())
    found = rooms(graph)
    assert circles(graph) == []
    assert circles(found) == []
    assert len(found) <= MOST_ROOMS
    assert arrows(found) <= MOST_ARROWS
