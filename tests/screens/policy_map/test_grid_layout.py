"""Where the panels of a map stand at a size of the screen."""

from __future__ import annotations

import pytest

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.agents.frozen_lake import FrozenLakeAgent
from llamagym_tui.agents.taxi import TaxiAgent
from llamagym_tui.screens.policy_map.grid import CellSize, places_for
from llamagym_tui.trainer.probes.map_policy import lay_out

BLACKJACK = lay_out(BlackjackAgent(), BlackjackAgent().policy_map())
LAKE = lay_out(FrozenLakeAgent(), FrozenLakeAgent().policy_map())


@pytest.mark.parametrize(
    ("size", "field", "with_optimal", "across", "extent"),
    [
        # hard: label 5, 10 fields; optimal: gap 2, 10 fields of 2 or 3; panels 3 apart. Height: heading, 18 rows.
        ((198, 45), CellSize(5, 2), True, 2, (2 * (5 + 50 + 2 + 30) + 3, 37)),
        ((118, 29), CellSize(3, 1), True, 2, (2 * (5 + 30 + 2 + 20) + 3, 19)),
        ((78, 19), CellSize(3, 1), False, 2, (2 * (5 + 30) + 3, 19)),
        ((58, 15), CellSize(3, 1), True, 1, (5 + 30 + 2 + 20, 30)),
    ],
)
def test_fields_of_blackjack_are_as_large_as_fits(
    size, field, with_optimal, across, extent
) -> None:
    places = places_for(BLACKJACK, *size)
    assert (places.cell, places.with_optimal, places.across) == (field, with_optimal, across)
    assert (places.width, places.height) == extent


def test_a_lake_has_large_fields_with_its_optimal_arrows_beside() -> None:
    places = places_for(LAKE, 78, 18)
    assert (places.cell, places.with_optimal, places.optimal_width) == (CellSize(7, 3), True, 7)


def test_many_panels_stand_in_rows_of_as_many_as_fit() -> None:
    taxi = lay_out(TaxiAgent(), TaxiAgent().policy_map())
    places = places_for(taxi, 158, 37)
    # Label 6, 5 fields of 5; optimal: gap 2, 5 fields of 3; panels 3 apart. Three rows of 1 + 5 * 2 lines.
    assert (places.cell, places.with_optimal, places.across, places.height) == (
        CellSize(5, 2),
        True,
        3,
        33,
    )
    assert [place.y for place in places.panels] == [0, 0, 0, 11, 11, 11, 22, 22]
    assert places.panels[3].x == 0
    # Two panels of 3 a field are 38 and 37 wide.
    assert [places_for(taxi, width, 15).across for width in (78, 77)] == [2, 1]


def test_where_nothing_fits_the_smallest_fields_are_scrolled() -> None:
    places = places_for(BLACKJACK, 20, 5)
    assert (places.cell, places.with_optimal, places.across) == (CellSize(3, 1), False, 1)
