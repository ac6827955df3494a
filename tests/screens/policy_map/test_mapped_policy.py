"""What a policy does on its map, counted by hand."""

from __future__ import annotations

import math

from llamagym_tui.protocol.events import PolicyMapLaidOut, PolicyMapped
from llamagym_tui.protocol.map_layout import MapCell, MapPanel
from llamagym_tui.screens.policy_map.mapped_policy import Count, MappedPolicy, Spot, best_policy

HOLE, NOTHING = MapCell(words="hole", sign="O"), MapCell()


def panel(title: str, cells: list[list[MapCell]]) -> MapPanel:
    rows, columns = (
        [str(row) for row in range(len(cells))],
        [str(column) for column in range(len(cells[0]))],
    )
    return MapPanel(
        title=title, row_name="", column_name="", rows=rows, columns=columns, cells=cells
    )


def state(words: str, *best: int) -> MapCell:
    return MapCell(words=words, best=list(best))


LAYOUT = PolicyMapLaidOut(
    panels=[
        panel("one", [[state("a", 0), HOLE], [state("b", 1), state("c", 0, 1)]]),
        panel("two", [[NOTHING, state("d", 0), state("e")]]),
    ],
    action_names=["stick", "hit"],
    signs=["S", "H"],
    action=1,
)
BOLD = [[0.6, 0.4], [0.2, 0.7], [0.1, 0.9], [0.9, 0.1], [0.3, 0.7]]
SHARES = [[0.6, 0.4], [0.5, 0.25], [0.1, 0.9], [0.2, 0.8], [0.3, 0.7]]


def mapped(shares: list[list[float]] = SHARES) -> MappedPolicy:
    return MappedPolicy(LAYOUT, PolicyMapped(update=1, prompt_version=0, shares=shares))


def test_shares_go_to_states_in_order_past_holes_and_empty_fields() -> None:
    cells = mapped().cells
    assert list(cells) == [
        Spot(0, 0, 0),
        Spot(0, 0, 1),
        Spot(0, 1, 0),
        Spot(0, 1, 1),
        Spot(1, 0, 1),
        Spot(1, 0, 2),
    ]
    assert cells[Spot(0, 0, 1)].shares == ()
    assert cells[Spot(1, 0, 1)].shares == (0.2, 0.8)


def test_an_action_that_is_one_of_the_best_agrees() -> None:
    agrees = [cell.agrees for cell in mapped().cells.values()]
    # a: stick, right; hole; b: stick, wrong; c: hit, one of both; d: hit, wrong; e: nobody knows.
    assert agrees == [True, None, False, True, False, None]


def test_the_best_policy_takes_each_best_action_equally_often() -> None:
    cells = best_policy(LAYOUT).cells
    assert cells[Spot(0, 0, 0)].shares == (1.0, 0.0)
    assert cells[Spot(0, 1, 1)].shares == (0.5, 0.5)
    assert cells[Spot(1, 0, 2)].shares == (), "nobody knows"
    assert best_policy(LAYOUT).count == Count(4, 4)


def test_a_policy_that_was_not_asked_agrees_nowhere_and_differs_nowhere() -> None:
    policy = MappedPolicy(LAYOUT, None)
    assert policy.count == Count(0, 0)
    assert {cell.choice for cell in policy.cells.values()} == {None}


def test_what_a_policy_that_has_diverged_does_is_not_known() -> None:
    policy = mapped([[math.nan, math.nan], *SHARES[1:]])
    assert policy.cells[Spot(0, 0, 0)].choice is None
    assert policy.count == Count(1, 3)
