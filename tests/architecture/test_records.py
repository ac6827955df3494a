"""What is handed from part to part is a value: nobody changes it behind the back of who made it."""

from __future__ import annotations

import dataclasses
import importlib
import inspect

from msgspec import Struct

from scripts.rooms import modules

ROOMS = tuple(f"llamagym_tui.{room}." for room in ("demos", "engine", "state", "trainer"))
GROWING = {
    "EnvSlot", "Extremes", "PackedTree", "Reply", "ScoredTree", "Seen", "Segment", "Shared", "Trajectory",
    "UpdateSums", "WatchedEpisode", "_EnvSlot",
}  # fmt: skip
"""Records that grow while something goes on."""


def is_frozen(kind: type) -> bool:
    return kind.__struct_config__.frozen if issubclass(kind, Struct) else kind.__dataclass_params__.frozen


def test_all_records_but_those_that_grow_are_frozen() -> None:
    names = [name for name in modules() if name.startswith(ROOMS)]
    kinds = [kind for name in names for _, kind in inspect.getmembers(importlib.import_module(name), inspect.isclass)]
    made_here = {kind for kind in kinds if kind.__module__ in names}
    records = {kind for kind in made_here if dataclasses.is_dataclass(kind) or issubclass(kind, Struct)}
    assert len(records) > 50
    assert {kind.__name__ for kind in records if not is_frozen(kind)} == GROWING
