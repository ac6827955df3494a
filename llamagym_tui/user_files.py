"""Folders of the user, what the app keeps there between runs, and files that a crash leaves whole.

Everything of ours that opens a file goes through here: only regular files of a bounded size are read, so that a pipe or
a device in a file's place never holds anybody up; what is made is readable by its owner only; and a draft, or a folder
that is removed, never leads out of its folder through a link. What cannot be done raises OSError, and a file that was
to be replaced is then as it was. A visitor of `llamagym-tui serve` who only watches writes nothing: that is decided
here. Which keys a visitor may not use, each screen says itself (`screens/widgets/refused.py`).
"""

import contextlib
import errno
import os
import shutil
import stat
import time
from io import BufferedRandom, TextIOWrapper
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal

import msgspec
from msgspec import Struct

PREFERENCES_FILE = "preferences.json"
BROWSER = "LLAMAGYM_TUI_BROWSER"
"""``watch``, ``play``, or ``play SPEC`` with the agent that the server was started with; of a session's processes."""
REFUSED = "Not available in a browser session."
ONLY_WATCHES = "Not available to who only watches a run."


def browser_session() -> str:
    """``play`` or ``watch`` in a process that is shown in a browser, else empty."""
    return os.environ.get(BROWSER, "").partition(" ")[0]


def may_open(spec: str) -> bool:
    """Whether the file or module of an agent, by its absolute spec, may be opened here."""
    return not browser_session() or spec == os.environ[BROWSER].partition(" ")[2]


def _require_writer() -> None:
    if browser_session() == "watch":
        raise PermissionError(errno.EPERM, REFUSED)


class Preferences(Struct, frozen=True, kw_only=True):
    """What was chosen last."""

    theme: str | None = None
    """Name of a theme. None: the app's own."""
    drawing: bool | None = None
    """Whether the watched state is drawn. None: where there is room next to the conversation."""
    all_figures: bool = False
    """Whether all figures of a run are shown, and not only three."""


def _folder(kind: Literal["data", "cache", "config"]) -> Path:
    """The user's folder of this program, or the one that LLAMAGYM_TUI_DATA, _CACHE or _CONFIG names."""
    if override := os.environ.get(f"LLAMAGYM_TUI_{kind.upper()}"):
        return Path(override)
    import platformdirs

    return Path(getattr(platformdirs, f"user_{kind}_dir")("llamagym-tui", appauthor=False))


def data_dir() -> Path:
    """The user's data folder of this program; not made."""
    return _folder("data")


def runs_dir() -> Path:
    """Where runs live that were given no folder; not made."""
    return data_dir() / "runs"


def cache_dir() -> Path:
    """The user's cache folder of this program, for what can be made again; not made."""
    return _folder("cache")


def config_dir() -> Path:
    """The user's configuration folder of this program; not made."""
    return _folder("config")


def load_preferences(folder: Path) -> Preferences:
    """What is kept in a folder; the defaults where nothing readable is."""
    try:
        return msgspec.json.decode(file_content(folder / PREFERENCES_FILE), type=Preferences)
    except (OSError, ValueError, RecursionError):
        return Preferences()


def keep_preferences(folder: Path, **chosen: Any) -> None:
    """Keep fields of `Preferences` for later runs; the others stay."""
    preferences = msgspec.structs.replace(load_preferences(folder), **chosen)
    replace_file(folder / PREFERENCES_FILE, msgspec.json.encode(preferences) + b"\n")


MOST_WHOLE = 64 * 2**20
"""Bytes of a file that is read at once."""
MOST_TEXT = 1_000_000
"""Bytes of a text that a person wrote."""
MOST_FILE = 4 * 2**30
"""Bytes of a file that is read line by line."""
BUFFER = 2**18
"""Bytes that are read at a time: a line without an end is passed over twenty times faster than by the usual 8 KiB."""
PREFIX, SUFFIX = ".llamagym-", ".partial"
"""Of the names of files and folders that are being written."""
ABANDONED_S = 3600.0
"""Age of a draft of which a crash can be assumed."""
_NEVER_WAIT = sum(getattr(os, flag, 0) for flag in ("O_NONBLOCK", "O_NOCTTY", "O_BINARY"))


def regular_file(path: Path, *, most: int = MOST_FILE) -> BinaryIO:
    """A file opened for reading, at once, whatever stands there.

    Raises:
        OSError: it cannot be read, is no regular file (but a folder, a pipe, a device), or has more than `most` bytes.
    """
    return os.fdopen(_opened(path, os.O_RDONLY, most), "rb", BUFFER)


def file_content(path: Path, *, most: int = MOST_WHOLE) -> bytes:
    """All bytes of a file, opened as by `regular_file`."""
    with regular_file(path, most=most) as file:
        return file.read(most)


def file_text(path: Path, *, most: int = MOST_TEXT) -> str:
    """A file as text, line ends as one character, without a byte order mark.

    Opened as by `regular_file`; raises UnicodeDecodeError, too, if it is not UTF-8.
    """
    with regular_file(path, most=most) as file:
        return TextIOWrapper(file, encoding="utf-8-sig").read()


def require_regular(folder: Path) -> None:
    """Refuse a folder that a library would wait for, or be filled up by: all in it are folders or bounded files."""
    for path in folder.iterdir():
        weights = path.suffix in (".safetensors", ".pt", ".bin", ".gguf")
        if not path.is_dir():
            regular_file(path, most=2**50 if weights else MOST_FILE // 8).close()


def growing_file(path: Path, *, follow: bool = False) -> BufferedRandom:
    """A file opened for reading and for writing at its end; made if absent.

    Raises:
        OSError: as `regular_file`; or it cannot be written, or is a link and `follow` is off.
    """
    _require_writer()
    nofollow = 0 if follow else getattr(os, "O_NOFOLLOW", 0)
    return os.fdopen(
        _opened(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | nofollow, MOST_FILE), "ab+"
    )


def _opened(path: Path, flags: int, most: int) -> int:
    try:
        descriptor = os.open(path, flags | _NEVER_WAIT, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(
                errno.ELOOP, f"{path.name} is a link that is not followed", str(path)
            ) from error
        raise
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_size <= most:
        return descriptor
    os.close(descriptor)
    if stat.S_ISREG(found.st_mode):
        raise OSError(errno.EFBIG, f"{path.name} has over {most:,} bytes", str(path))
    raise OSError(errno.EINVAL, f"{path.name} is no regular file", str(path))


def make_folder(path: Path) -> None:
    """Make a folder, and those above it, for its owner only; one that is there stays as it is."""
    _require_writer()
    try:
        path.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        if path.parent == path:
            raise
        make_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


def replace_file(path: Path, content: bytes, *, sync: bool = False) -> None:
    """Write a file; until it is whole the old one stays. Folders are made; a link is replaced, not followed.

    A file keeps its mode, and a new one is its owner's only. With `sync` it is on the disk, not only with the operating
    system, before it takes the old one's place.
    """
    make_folder(path.parent)
    discard_drafts(path.parent, older_than_s=ABANDONED_S)
    from tempfile import mkstemp  # costs the first frame otherwise

    descriptor, name = mkstemp(SUFFIX, PREFIX, path.parent)
    draft = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if path.is_file() and not path.is_symlink():
                draft.chmod(path.stat().st_mode & 0o777)
            file.write(content)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    if sync:
        sync_folder(path.parent)


def draft_folder(parent: Path) -> Path:
    """A new, empty folder of its owner only, to be filled and then renamed."""
    _require_writer()
    from tempfile import mkdtemp

    return Path(mkdtemp(SUFFIX, PREFIX, parent))


def link_folder(source: Path, target: Path) -> None:
    """Put all that is in a folder into another one too: the same files where there are hard links, else copies."""
    _require_writer()
    shutil.copytree(source, target, symlinks=True, copy_function=_linked, dirs_exist_ok=True)


def _linked(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def discard_drafts(folder: Path, *, older_than_s: float = 0.0) -> None:
    """Remove drafts that a crash has left; one that cannot be removed stays."""
    for draft in folder.glob(f"{PREFIX}*{SUFFIX}"):
        with contextlib.suppress(OSError):
            if time.time() - draft.lstat().st_mtime >= older_than_s:
                discard(draft)


def discard(path: Path) -> None:
    """Remove a file, or a folder with all that is in it; of a link only the link. What is not there is fine."""
    _require_writer()
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Put names of new and renamed files on disk, where the system knows how."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def torn_line_start(file: IO[bytes]) -> int:
    """The byte at which a last line without an end begins, as a crash leaves one; the file's length if none is torn."""
    end = file.seek(0, os.SEEK_END)
    while end:  # backwards, a block at a time
        start = max(0, end - 65_536)
        file.seek(start)
        if (newline := file.read(end - start).rfind(b"\n")) >= 0:
            return start + newline + 1
        end = start
    return 0
