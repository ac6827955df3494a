"""What is handed from part to part is a value: nobody changes it behind the back of who made it."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import math

import msgspec
from msgspec import Struct

from scripts.rooms import modules

ROOMS = tuple(
    f"llamagym_tui.{room}"
    for room in ("demos", "engine", "protocol", "returns", "state", "trainer")
)
GROWING = {
    "CollapseMonitor", "Conversation", "EnvSlot", "PackedTree", "Reply", "Segment", "Shared", "Trajectory",
    "UpdateSums", "WatchedEpisode", "_EnvSlot", "_Table",
}  # fmt: skip
"""Records that grow while something goes on."""
DEFAULTS = {
    "CollapseMonitor": {"is_quiet": True, "lowest_failures": math.inf},
    "Demonstration": {"schema": 1},
    "EnvSlot": {"knows_last": True},
    "EpisodeCounts": {"mode": "train"},
    "Evaluate": {"episodes": 1000, "greedy": True},
    "ForwardLimits": {"scored": math.inf},
    "Lookahead": {"gain": 64.0},
    "MatchAgainstModel": {"seed_bits": 31},
    "ReturnSeries": {"effect": 1.0, "group": 1},
    "RunState": {"detail": "starting the trainer", "mode": "train", "phase": "loading"},
    "RunSummary": {"ending": "open", "version": 6},
    "Shared": {"seed_bits": 31},
    "Step": {"unit": "turn"},
    "Turn": {"is_trained": True, "steps": 1},
    "TurnInspected": {
        "credit": "turn",
        "said_by_policy": True,
        "stage": "under_way",
        "temperature": 1.0,
    },
    "UpdateSeries": {"every": 1},
    "Verdict": {"level": "quiet"},
    "WarmStart": {"method": "sft"},
    "_EnvSlot": {"is_trained": True},
}
"""What they hold at first, where it is not nothing."""


def records() -> set[type]:
    names = [name for name in modules() if name.startswith(ROOMS)]
    kinds = [
        kind
        for name in names
        for _, kind in inspect.getmembers(importlib.import_module(name), inspect.isclass)
    ]
    made_here = {kind for kind in kinds if kind.__module__ in names}
    return {
        kind
        for kind in made_here
        if issubclass(kind, Struct | tuple) or dataclasses.is_dataclass(kind)
    }


def is_frozen(kind: type) -> bool:
    if issubclass(kind, Struct):
        return kind.__struct_config__.frozen
    return issubclass(kind, tuple) or kind.__dataclass_params__.frozen


def defaults(kind: type) -> dict[str, object]:
    """Those of plain values."""
    found = kind._field_defaults if hasattr(kind, "_field_defaults") else {}
    if issubclass(kind, Struct):
        found = {field.name: field.default for field in msgspec.structs.fields(kind)}
    elif dataclasses.is_dataclass(kind):
        found = {field.name: field.default for field in dataclasses.fields(kind)}
    return {name: value for name, value in found.items() if type(value) in (bool, int, float, str)}


def test_all_records_but_those_that_grow_are_frozen() -> None:
    assert len(records()) > 150
    assert {kind.__name__ for kind in records() if not is_frozen(kind)} == GROWING


def test_what_a_record_does_not_name_is_nothing() -> None:
    something = {
        (kind.__name__, name, value)
        for kind in records()
        for name, value in defaults(kind).items()
        if value
    }
    assert something == {
        (kind, name, value) for kind, named in DEFAULTS.items() for name, value in named.items()
    }
