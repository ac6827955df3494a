"""What is handed from part to part is a value: nobody changes it behind the back of who made it."""

from __future__ import annotations

import dataclasses
import importlib
import inspect

from scripts.rooms import modules

ROOMS = tuple(f"llamagym_tui.{room}." for room in ("demos", "engine", "state", "trainer"))
GROWING = {
    "EnvSlot", "Extremes", "PackedTree", "Reply", "ScoredTree", "Segment", "Shared", "Trajectory", "UpdateSums",
    "WatchedEpisode", "_EnvSlot",
}  # fmt: skip
"""Dataclasses that grow while something goes on."""


def test_all_records_but_those_that_grow_are_frozen() -> None:
    names = [name for name in modules() if name.startswith(ROOMS)]
    kinds = [kind for name in names for _, kind in inspect.getmembers(importlib.import_module(name), inspect.isclass)]
    records = {kind for kind in kinds if dataclasses.is_dataclass(kind) and kind.__module__ in names}
    found = {kind.__name__ for kind in records if not kind.__dataclass_params__.frozen}
    assert len(records) > 40
    assert found == GROWING
