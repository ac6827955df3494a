"""Run folders for tests, written as the trainer writes them, without a model."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from llamagym_tui.protocol.events import AnyEvent
from llamagym_tui.runs.run_store import MODEL_DIR, RunStore
from tests import fakes


def record(
    run_dir: Path, events: Iterable[AnyEvent], *, checkpoint: bool = False, **settings: object
) -> Path:
    """A folder with the events of a run."""
    store = RunStore.create(replace(fakes.config(run_dir), **settings))
    for event in events:
        store.append(event)
    store.close()
    if checkpoint:
        (run_dir / MODEL_DIR).mkdir()
    return run_dir
