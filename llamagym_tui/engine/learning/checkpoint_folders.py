"""Folders of checkpoints: each is written whole to a draft of its own, synced to the disk, and only then put in place.

The latest is ``model``, the one before it stays in ``model.old``, and others are kept under names of their own, as
links to the same files. So after a crash at any moment a whole one is there. Links that somebody put into the folder
are removed, never followed. What is in a checkpoint is up to `llamagym_tui.engine.learning.checkpoint`.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from llamagym_tui.runs.run_folder import GOOD_MODEL_DIR, MODEL_DIR, OLD, START_DIR, UPDATE_DIR
from llamagym_tui.user_files import (
    discard,
    discard_drafts,
    draft_folder,
    link_folder,
    regular_file,
    sync_folder,
)


@contextmanager
def written(run_dir: Path, name: str) -> Iterator[Path]:
    """A new folder to write to, which then takes the place of that name; what stands there stays until then.

    Raises:
        OSError: it cannot be written; nothing is left of it.
    """
    draft = draft_folder(run_dir)
    place = run_dir / name
    old = run_dir / f"{name}{OLD}"
    try:
        yield draft
        for folder, _, files in os.walk(draft):
            for file in files:
                _sync(Path(folder, file))
            sync_folder(Path(folder))
        if os.path.lexists(place):
            discard(old)  # not before: it may be all that a crash has left
            os.replace(place, old)
        os.replace(draft, place)
        sync_folder(run_dir)
    except Exception:
        discard(draft)
        raise
    if name != MODEL_DIR:
        discard(old)


def keep(run_dir: Path, name: str) -> Path:
    """Keep the latest checkpoint under a name, and in it the policy that PPO began from, if that is stored; its folder.

    Raises:
        OSError: it cannot be written; what was kept under that name still stands.
    """
    with written(run_dir, name) as draft:
        link_folder(run_dir / MODEL_DIR, draft)
        if (run_dir / START_DIR).is_dir():
            link_folder(run_dir / START_DIR, draft / START_DIR)
    return run_dir / name


def clean(run_dir: Path) -> None:
    """Remove what a crash has left of drafts and of names that were being replaced; what is whole stays or returns.

    Raises:
        OSError: the folder cannot be changed.
    """
    discard_drafts(run_dir)
    names = [GOOD_MODEL_DIR, START_DIR]
    names += [path.stem for path in run_dir.glob(f"{UPDATE_DIR}*{OLD}")]
    for name in names:
        place = run_dir / name
        old = run_dir / f"{name}{OLD}"
        if os.path.lexists(place):
            discard(old)
        elif os.path.lexists(old):
            os.replace(old, place)


def set_aside(place: Path) -> None:
    """Rename a checkpoint that cannot be read, so that the next ones do not push out the one that was read instead."""
    aside = place.with_name(f"{place.name}.unreadable")
    discard(aside)
    os.replace(place, aside)


def _sync(file: Path) -> None:
    if os.name == "nt":
        return  # it syncs only what is open for writing
    with regular_file(file, most=sys.maxsize) as opened:
        os.fsync(opened.fileno())
