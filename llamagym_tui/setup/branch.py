"""Branches: runs that go on from a checkpoint that another run has kept, under other settings.

A branch is made of its parent's files, without torch, and resumed like any run; its parent is never changed by it.
"""

from pathlib import Path

from msgspec.structs import replace

from llamagym_tui.config import RunConfig
from llamagym_tui.errors import RunStoreError, UsageError
from llamagym_tui.run_store import EVENTS_FILE, MODEL_DIR, RunStore, find_run
from llamagym_tui.user_files import discard, draft_folder, link_folder, make_folder

UPDATE_DIR = "update-"
"""With an update's number: a checkpoint that is kept to branch off from."""
START_DIR = "start"
"""In it, and in a run's folder: the policy that PPO began from, if that is another one than the model's own."""


def kept_updates(run_dir: Path) -> list[int]:
    """Updates of which a run has kept the checkpoint, in order."""
    names = (
        path.name.removeprefix(UPDATE_DIR)
        for path in run_dir.glob(f"{UPDATE_DIR}*")
        if path.is_dir()
    )
    return sorted(int(name) for name in names if name.isascii() and name.isdigit())


def discard_surplus(run_dir: Path, most: int) -> None:
    """Remove kept checkpoints until there are so many: each time the one whose neighbours are closest together.

    Raises:
        OSError: one cannot be removed.
    """
    kept = kept_updates(run_dir)
    while len(kept) > most:
        gaps = [after - before for before, after in zip(kept, kept[2:], strict=False)]
        discard(run_dir / f"{UPDATE_DIR}{kept.pop(gaps.index(min(gaps)) + 1 if gaps else 0)}")


def branch_point(spec: str) -> str:
    """What RUN[@UPDATE] names, as `RunConfig.parent` has it; without an update the latest kept one.

    Raises:
        RunStoreError: the run keeps no checkpoints at all.
        UsageError: there is no such run, or it keeps none of that update.
    """
    name, _, number = spec.rpartition("@")
    has_update = number.isascii() and number.isdigit()
    folder = find_run((name or None) if has_update else spec).absolute()
    if not (kept := kept_updates(folder)):
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
    """Make the run that a configuration with a parent names; the configuration that resumes it.

    Raises:
        RunStoreError: the folder holds a run, or it cannot be made.
    """
    folder, (parent, _, update) = Path(config.run_dir), str(config.parent).rpartition("@")
    store = RunStore(folder)
    store.check(config)
    config = replace(config, resume=True)
    try:
        make_folder(folder)
        link_folder(Path(parent, f"{UPDATE_DIR}{update}"), draft := draft_folder(folder))
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
