"""Threads of a session: those requested, those measured before, or the fastest number."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from msgspec.structs import replace

from llamagym_tui.trainer import builders
from llamagym_tui.trainer.builders import Builders
from tests import fakes
from tests.fake_parts import Loaded


@pytest.mark.parametrize(
    ("settings", "device", "chosen"),
    [
        ({"threads": 3, "measured_threads": 2}, "cpu", [3]),
        ({"measured_threads": 2}, "cpu", [2]),
        ({"measured_threads": 4}, "cpu", [4]),
        ({"measured_threads": 5}, "cpu", ["measured now"]),  # on a machine with more cores
        ({}, "cpu", ["measured now"]),
        ({"measured_threads": 2}, "cuda", [1]),
        ({"threads": 3}, "cuda", [3]),
    ],
)
def test_requested_threads_come_before_measured_ones_and_an_accelerator_needs_one(
    tmp_path,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, Any],
    device: str,
    chosen: list[Any],
) -> None:
    found: list[Any] = []

    def use(policy: Any, count: Any) -> Any:
        found.append(count)
        return count

    monkeypatch.setattr(builders, "cores", lambda: 4)
    monkeypatch.setattr(
        builders,
        "calibrate_threads_for",
        lambda policy: found.append("measured now") or "measured now",
    )
    monkeypatch.setattr(builders, "use_threads", use)
    made = Builders(replace(fakes.config(tmp_path), **settings))
    assert [made.threads(None, Loaded(device=device))] == found == chosen


def test_a_model_is_loaded_on_one_thread_and_what_its_trial_took_is_given_back(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[Any] = []
    monkeypatch.setattr(torch, "set_num_threads", done.append)
    monkeypatch.setattr(builders, "keep_freed_memory", lambda: done.append("freed memory is kept"))
    monkeypatch.setattr(builders, "return_freed_memory", lambda: done.append("given back"))
    monkeypatch.setattr(
        builders, "load_model_and_tokenizer", lambda *_, **__: done.append("loaded")
    )
    Builders(fakes.config(tmp_path)).model()
    assert done == ["freed memory is kept", 1, "loaded", "given back"]
