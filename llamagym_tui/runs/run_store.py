"""Run folders: settings, events, log, model and checkpoint of one run, and where runs live. Needs no torch.

A folder belongs to one process at a time (a lock file says so) and holds one run, which a resumed one continues.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from llamagym_tui.errors import RunStoreError, UsageError
from llamagym_tui.protocol.events import AnyEvent, Event, PromptChanged, RunStarted, SettingsChanged
from llamagym_tui.runs.run_folder import ABOUT_FILE as ABOUT_FILE
from llamagym_tui.runs.run_folder import CONFIG_FILE as CONFIG_FILE
from llamagym_tui.runs.run_folder import EVENTS_FILE as EVENTS_FILE
from llamagym_tui.runs.run_folder import GOOD_MODEL_DIR as GOOD_MODEL_DIR
from llamagym_tui.runs.run_folder import LOCK_FILE as LOCK_FILE
from llamagym_tui.runs.run_folder import LOG_FILE, OLD_MODEL_DIR
from llamagym_tui.runs.run_folder import MODEL_DIR as MODEL_DIR
from llamagym_tui.runs.run_folder import SUMMARY_FILE as SUMMARY_FILE
from llamagym_tui.settings import RunConfig, changed
from llamagym_tui.user_files import (
    file_content,
    growing_file,
    make_folder,
    regular_file,
    replace_file,
    runs_dir,
)

if TYPE_CHECKING:
    from llamagym_tui.runs.event_log import EventLog

# The names are those of `llamagym_tui.runs.run_folder`; who asks this module for runs may take them from here.
_OF_A_RUN = (CONFIG_FILE, EVENTS_FILE, MODEL_DIR, OLD_MODEL_DIR)


def utc_now() -> datetime:
    """The time of day, in UTC."""
    return datetime.now(UTC)


class RunStore:
    """The folder of a run that is under way."""

    def __init__(self, run_dir: str | Path) -> None:
        """Name a folder; nothing is read or written yet."""
        # Imported here, as the playground names a folder before its first frame.
        from filelock import FileLock

        self.run_dir = Path(run_dir)
        self._lock = FileLock(self.run_dir / LOCK_FILE)
        self._events: EventLog | None = None
        self.last_at_s = 0.0
        """Stamp of the run's last event before this session."""

    @classmethod
    def create(cls, config: RunConfig, *, every_episode: bool = False) -> RunStore:
        """The folder of a run, made and ready to be appended to; the settings are written.

        Args:
            config: the settings.
            every_episode: as of `EventLog`.
        Raises:
            RunStoreError: the folder holds a run and ``resume`` is off, or holds none and it is on, or the two
                runs differ in agent or model; or it cannot be written, or another process writes it.
        """
        from filelock import Timeout

        from llamagym_tui.runs.event_log import EventLog, last_stamp

        store = cls(config.run_dir)
        store.check(config)
        try:
            make_folder(store.run_dir)
            store._lock.acquire(timeout=0.2)  # a look at whether it is held takes it for a moment
            store.write_config(config)
            store._events = EventLog(store.run_dir / EVENTS_FILE, every_episode=every_episode)
            store.last_at_s = last_stamp(store.run_dir / EVENTS_FILE)
        except Timeout as error:
            raise _in_use(store.run_dir) from error
        except OSError as error:
            store.close()
            raise unwritable(store.run_dir, error) from error
        return store

    @property
    def log_path(self) -> Path:
        """Everything that the trainer's libraries print."""
        return self.run_dir / LOG_FILE

    def write_config(self, config: RunConfig) -> None:
        """Write the settings, all or nothing; raises OSError if that cannot be done."""
        settings = msgspec.json.format(msgspec.json.encode(config), indent=2) + b"\n"
        replace_file(self.run_dir / CONFIG_FILE, settings)

    def open_log(self) -> BinaryIO:
        """The file of `log_path`, for what is printed; raises RunStoreError if it cannot be written."""
        try:
            return growing_file(self.log_path)
        except OSError as error:
            raise unwritable(self.run_dir, error) from error

    def append(self, event: Event) -> str:
        """Add an event to ``events.jsonl``; `llamagym_tui.runs.event_log` decides which are kept.

        A sentence for people is returned where writing fails, or works again.
        """
        if self._events is None:
            return ""
        return self._events.append(event)

    def flush(self) -> str:
        """Let readers of the folder see every event now; a sentence as of `append`."""
        return "" if self._events is None else self._events.flush()

    def close(self) -> None:
        """Flush, close and give the folder free; again does nothing. Raises OSError as `EventLog.close`."""
        events = self._events
        self._events = None
        try:
            if events is not None:
                events.close()
        finally:
            self._lock.release()

    def discard_unbegun(self, *, keeps_log: bool) -> None:
        """Leave no run behind where a new one has ended before it began; what others put into the folder stays.

        Args:
            keeps_log: leave the log, which has the traceback of a fault.
        """
        if has_checkpoint(self.run_dir):
            return
        written = [CONFIG_FILE, EVENTS_FILE, SUMMARY_FILE, LOCK_FILE]
        with suppress(OSError):
            for name in written if keeps_log else [*written, LOG_FILE]:
                (self.run_dir / name).unlink(missing_ok=True)
            self.run_dir.rmdir()

    def check(self, config: RunConfig) -> None:
        """Raises what `create` raises if a process has the folder, or its run and the settings do not go together."""
        if is_held(self.run_dir):
            raise _in_use(self.run_dir)
        if not config.resume:
            if held := [name for name in _OF_A_RUN if (self.run_dir / name).exists()]:
                raise RunStoreError(
                    f"{self.run_dir} already holds a run ({held[0]}); "
                    "resume it by --resume, or choose another folder with --run-dir."
                )
            return
        require_same_policy(config, self.run_dir)
        if not has_checkpoint(self.run_dir):
            raise RunStoreError(
                f"The run in {self.run_dir} ended before its first checkpoint; "
                "begin a new one in another folder with --run-dir."
            )


def _in_use(run_dir: Path) -> RunStoreError:
    return RunStoreError(
        f"Another process trains in {run_dir}; stop it, or choose another folder with --run-dir."
    )


def unwritable(run_dir: Path, error: OSError) -> RunStoreError:
    """The error for the folder of a run that cannot be written."""
    why = error.strerror or error
    return RunStoreError(
        f"The run folder {run_dir} cannot be written ({why}); choose another one with --run-dir."
    )


def require_same_policy(config: RunConfig, run_dir: Path) -> None:
    """Raises RunStoreError: the run in a folder has another agent, model or wordings than a configuration, or is none.

    A model at another place is taken for the same one if none is left at the earlier place.
    """
    earlier = read_config(run_dir)
    if config.agent != earlier.agent:
        raise RunStoreError(
            f"The run in {run_dir} has agent {earlier.agent}, not {config.agent}; "
            "resume it with the same agent, or begin a new run in another folder."
        )
    has_moved = Path(earlier.model).is_absolute() and not Path(earlier.model).exists()
    if config.model != earlier.model and not has_moved:
        raise RunStoreError(
            f"The run in {run_dir} has model {earlier.model}, not {config.model}; "
            "resume it with the same model, or begin a new run in another folder."
        )
    # The directions that the adapter on a head sees are measured once, in all the wordings that a run plays.
    if earlier.trains_head_alone and config.wordings != earlier.wordings:
        played = "in several wordings" if earlier.wordings else "in one wording"
        raise RunStoreError(
            f"The run in {run_dir} has learnt {played}, and its adapter on the LM head can learn no others: "
            "go on with the same wordings, or begin a new run in another folder."
        )


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """A run on disk."""

    run_dir: Path
    config: RunConfig
    started_at: datetime
    """When it was begun (UTC)."""
    has_checkpoint: bool
    is_running: bool = False
    """True if a process has the folder now."""
    about: str = ""
    """The text of its file `about.txt`: NAME, or NAME: NOTE."""

    @property
    def name(self) -> str:
        """Its name; empty if it has none."""
        return self.about.partition(":")[0].strip()

    @property
    def standing(self) -> str:
        """Its state, for people."""
        if self.is_running:
            return "running"
        return "can be resumed" if self.has_checkpoint else "no checkpoint"


def new_run_dir(
    agent_name: str, *, clock: Callable[[], datetime] = utc_now, parent: Path | None = None
) -> Path:
    """A folder for a new run, named by time and agent, and made at once.

    A folder that cannot be made is named all the same; `RunStore.create` reports why. Characters that do not belong
    into a file name are replaced. `parent`: by default the folder of the user's runs.
    """
    agent = re.sub(r"[^A-Za-z0-9_.-]+", "-", agent_name).strip("-.") or "run"
    name = f"{clock():%Y%m%d-%H%M%S}-{agent}"
    candidate = (parent or runs_dir()) / name
    number = 1
    with suppress(OSError):
        make_folder(candidate.parent)
        while candidate.exists():
            number += 1
            candidate = candidate.with_name(f"{name}-{number}")
        candidate.mkdir(mode=0o700)
    return candidate


def is_run(path: str | Path) -> bool:
    """True for the folder of a run."""
    return (Path(path) / CONFIG_FILE).is_file() and (Path(path) / EVENTS_FILE).is_file()


def find_run(spec: str | None) -> Path:
    """The folder of a run that is named by its path, or by its name among the user's runs; the latest by default.

    Raises:
        RunStoreError: there is none at all.
        UsageError: there is none of that name.
    """
    if spec is None:
        folders = [run.run_dir for run in list_runs() if is_run(run.run_dir)]
        # The settings are written when a run is begun or resumed.
        latest = max(
            folders, key=lambda folder: (folder / CONFIG_FILE).stat().st_mtime, default=None
        )
        if latest is None:
            raise RunStoreError(
                f"There are no runs in {runs_dir()} yet; llamagym-tui blackjack begins one, or name its folder."
            )
        return latest
    path = Path(spec).expanduser()
    if is_run(path):
        return path.absolute()
    folder = runs_dir() / spec
    if is_run(folder):
        return folder.absolute()
    raise UsageError(f"There is no run {spec}; `llamagym-tui runs` lists them.")


def read_config(run_dir: str | Path) -> RunConfig:
    """The settings of a run. Raises RunStoreError: the folder holds no run, or its settings are not of this version."""
    path = Path(run_dir) / CONFIG_FILE
    try:
        return msgspec.json.decode(file_content(path), type=RunConfig)
    except OSError as error:
        raise RunStoreError(
            f"{run_dir} holds no run ({CONFIG_FILE}: {error.strerror or error}); `llamagym-tui runs` lists them."
        ) from error
    except (ValueError, RecursionError) as error:
        raise RunStoreError(
            f"{path} has no settings of a run ({error}); name another run folder."
        ) from error


def read_events(run_dir: str | Path) -> Iterator[AnyEvent]:
    """The events of a run, in order, as `llamagym_tui.runs.event_log.read_from`."""
    from llamagym_tui.runs import event_log

    return event_log.read(Path(run_dir) / EVENTS_FILE)


def last_settings(run_dir: str | Path) -> RunConfig:
    """The settings that a run had at its end: those it was begun or resumed with, and what was changed live since.

    Raises as `read_config` and `read_events`.
    """
    given = read_config(run_dir)
    settings = given
    for event in read_events(run_dir):
        if isinstance(event, RunStarted):
            settings = given  # the events of a resumed run repeat the changes that it has kept
        if isinstance(event, RunStarted | PromptChanged):
            settings = msgspec.structs.replace(settings, system_prompt=event.system_prompt)
        elif isinstance(event, SettingsChanged):
            settings = changed(settings, event.changes)
    return settings


def list_runs() -> list[RunInfo]:
    """Runs in the user's data folder, the latest first; folders that hold no readable run are left out."""
    found = []
    for path in runs_dir().glob(f"*/{CONFIG_FILE}"):
        folder = path.parent
        with suppress(RunStoreError):
            found.append(
                RunInfo(
                    run_dir=folder,
                    config=read_config(folder),
                    started_at=_begun_at(folder),
                    has_checkpoint=has_checkpoint(folder),
                    is_running=is_held(folder),
                    about=about(folder),
                )
            )
    return sorted(found, key=lambda run: run.started_at, reverse=True)


def about(folder: Path) -> str:
    """The owner's words on a run; empty if there are none."""
    try:
        return file_content(folder / ABOUT_FILE, most=10_000).decode("utf-8", "replace")
    except OSError:
        return ""


def has_checkpoint(folder: Path) -> bool:
    """True if the run in a folder can be resumed."""
    return any((folder / name).is_dir() for name in (MODEL_DIR, OLD_MODEL_DIR, GOOD_MODEL_DIR))


def is_held(folder: Path) -> bool:
    """True if a process holds the lock of a folder; False if the system cannot be asked. Nothing is written."""
    if sys.platform == "win32":
        return False
    import fcntl

    try:
        with regular_file(folder / LOCK_FILE) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _begun_at(folder: Path) -> datetime:
    """When a run was begun, by its folder's name, else when its settings were written."""
    with suppress(ValueError):
        return datetime.strptime(f"{folder.name[:15]}+0000", "%Y%m%d-%H%M%S%z")
    return datetime.fromtimestamp((folder / CONFIG_FILE).stat().st_mtime, UTC)
