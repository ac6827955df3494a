"""Full garbage collections, pauses of 300 ms, come while no key waits for them."""

from __future__ import annotations

import gc
import time

import pytest

from llamagym_tui.app.app import COLLECTIONS, FULL_AFTER, UNKEYED_S, collect_without_keys


@pytest.mark.parametrize(
    ("thresholds", "count", "keyed_s_ago", "full"),
    [
        (COLLECTIONS, FULL_AFTER + 1, UNKEYED_S + 0.5, 1),
        (COLLECTIONS, FULL_AFTER + 1, UNKEYED_S - 0.5, 0),
        (COLLECTIONS, FULL_AFTER, UNKEYED_S + 0.5, 0),
        ((700, 10, 10), FULL_AFTER + 1, UNKEYED_S + 0.5, 0),
    ],
    ids=["due", "a key has come", "not due yet", "Python's own thresholds"],
)
def test_a_full_collection_that_is_due_waits_until_nobody_is_at_the_keys(
    monkeypatch: pytest.MonkeyPatch,
    thresholds: tuple[int, int, int],
    count: int,
    keyed_s_ago: float,
    full: int,
) -> None:
    made: list[bool] = []
    monkeypatch.setattr(gc, "get_threshold", lambda: thresholds)
    monkeypatch.setattr(gc, "get_count", lambda: (0, 0, count))
    monkeypatch.setattr(gc, "collect", lambda: made.append(True))
    collect_without_keys(time.monotonic() - keyed_s_ago)
    assert len(made) == full
