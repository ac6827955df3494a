"""Branches: runs that go on from a checkpoint that another run has kept, with other settings.

A branch is made from its parent's files, without torch, and is then resumed like any run. It never changes its parent.
"""

from pathlib import Path

from msgspec.structs import replace

from llamagym_tui.errors import RunStoreError, UsageError
from llamagym_tui.runs.run_folder import EVENTS_FILE, MODEL_DIR, START_DIR
from llamagym_tui.runs.run_folder import UPDATE_DIR as UPDATE_DIR
from llamagym_tui.runs.run_store import RunStore, find_run
from llamagym_tui.settings import RunConfig
from llamagym_tui.user_files import discard, draft_folder, link_folder, make_folder


def kept_updates(run_dir: Path) -> list[int]:
    """The updates whose checkpoints a run has kept, in order."""
    kept = []
    for path in run_dir.glob(f"{UPDATE_DIR}*"):
        number = path.name.removeprefix(UPDATE_DIR)
        if path.is_dir() and number.isascii() and number.isdigit():
            kept.append(int(number))
    return sorted(kept)


def discard_surplus(run_dir: Path, most: int) -> None:
    """Remove kept checkpoints until at most `most` are left: each time the one whose neighbours are closest together.

    Raises:
        OSError: one cannot be removed.
    """
    kept = kept_updates(run_dir)
    while len(kept) > most:
        # The gap that the second, the third, … one would leave; the first and the last one stay.
        gaps = [after - before for before, after in zip(kept, kept[2:], strict=False)]
        surplus = gaps.index(min(gaps)) + 1 if gaps else 0
        update = kept.pop(surplus)
        discard(run_dir / f"{UPDATE_DIR}{update}")


def branch_point(spec: str) -> str:
    """The checkpoint that RUN[@UPDATE] names, in the form of `RunConfig.parent`; without an update, the latest one.

    Raises:
        RunStoreError: the run keeps no checkpoints at all.
        UsageError: there is no such run, or it keeps no checkpoint of that update.
    """
    name, _, number = spec.rpartition("@")
    has_update = number.isascii() and number.isdigit()
    run: str | None = spec
    if has_update:
        run = name or None
    folder = find_run(run).absolute()
    kept = kept_updates(folder)
    if not kept:
        raise RunStoreError(
            f"{folder} keeps no checkpoint to branch off from; its setting keep_checkpoints is 0."
        )
    update = int(number) if has_update else kept[-1]
    if update not in kept:
        raise UsageError(
            f"{folder} keeps no checkpoint of update {update}; it has {', '.join(map(str, kept))}."
        )
    return f"{folder}@{update}"


def begun(config: RunConfig) -> RunConfig:
    """Make the folder of a branch from its parent's; returns the configuration that resumes it.

    Raises:
        RunStoreError: the folder holds a run, or it cannot be made.
    """
    folder = Path(config.run_dir)
    parent, _, update = str(config.parent).rpartition("@")
    store = RunStore(folder)
    store.check(config)
    config = replace(config, resume=True)
    try:
        make_folder(folder)
        draft = draft_folder(folder)
        link_folder(Path(parent, f"{UPDATE_DIR}{update}"), draft)
        if (draft / START_DIR).is_dir():
            (draft / START_DIR).rename(folder / START_DIR)
        draft.rename(folder / MODEL_DIR)
        (folder / EVENTS_FILE).touch(mode=0o600)
        store.write_config(config)
    except OSError as error:
        raise RunStoreError(
            f"{folder} cannot become a branch of {parent} ({error}); name another folder."
        ) from error
    return config
