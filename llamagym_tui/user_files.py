"""The user's folders, what the app keeps there between runs, and files that stay whole when the program crashes.

All of our code opens files through this module. Only regular files of a bounded size are read. New files can be read
by their owner only. Neither a draft nor a folder that is removed leads out of its folder through a link. If something
cannot be done, OSError is raised, and a file that was to be replaced is still there as it was. A visitor of
`llamagym-tui serve` who only watches writes nothing. Each screen says itself which keys a visitor may not use
(`REFUSED_IN_BROWSER`).
"""

import contextlib
import errno
import os
import shutil
import stat
import time
from io import BufferedRandom, TextIOWrapper
from pathlib import Path
from typing import IO, BinaryIO, Literal

from llamagym_tui.errors import UsageError

THEME_FILE = "theme.txt"
BROWSER = "LLAMAGYM_TUI_BROWSER"
"""Environment variable in the processes of a browser session: ``watch``, ``play``, or, with the agent that the
server was started with, ``play SPEC`` or ``seat SPEC``."""
REFUSED = "Not available in a browser session."
ONLY_WATCHES = "Not available to visitors who only watch a run."


def browser_session() -> str:
    """``play``, ``seat`` (in a class) or ``watch`` if this process is shown in a browser, else empty."""
    return os.environ.get(BROWSER, "").partition(" ")[0]


def may_open(spec: str) -> bool:
    """True if the file or module of an agent, by its absolute spec, may be opened here."""
    return not browser_session() or spec == os.environ[BROWSER].partition(" ")[2]


def _require_writer() -> None:
    if browser_session() == "watch":
        raise PermissionError(errno.EPERM, REFUSED)


class HomelessError(UsageError, FileNotFoundError):
    """The user has no home folder, and nothing names a folder in its place; as an OSError, what reads or writes there
    cannot be done."""


def _folder(kind: Literal["data", "cache", "config"]) -> Path:
    """The user's folder of this program, or the one that LLAMAGYM_TUI_DATA, _CACHE or _CONFIG names.

    Without a home, cache and configuration lie in the folder that LLAMAGYM_TUI_DATA names. Raises HomelessError.
    """
    if override := os.environ.get(f"LLAMAGYM_TUI_{kind.upper()}"):
        return Path(override)
    from platformdirs import PlatformDirs

    try:
        return Path(getattr(PlatformDirs("llamagym-tui", appauthor=False), f"user_{kind}_dir"))
    except RuntimeError as error:
        if data := os.environ.get("LLAMAGYM_TUI_DATA"):
            return Path(data, kind)
        raise HomelessError(
            "This user has no home folder to keep files in; set HOME, or set LLAMAGYM_TUI_DATA to a folder."
        ) from error


def data_dir() -> Path:
    """The user's data folder of this program, which may not exist yet."""
    return _folder("data")


def runs_dir() -> Path:
    """The folder of the runs that were given no folder of their own; it may not exist yet."""
    return data_dir() / "runs"


def cache_dir() -> Path:
    """The user's cache folder of this program, for files that can be made again; it may not exist yet."""
    return _folder("cache")


def config_dir() -> Path:
    """The user's configuration folder of this program, which may not exist yet."""
    return _folder("config")


def kept_theme() -> str:
    """The name of the theme that the user chose last; empty if there is none."""
    try:
        return file_text(config_dir() / THEME_FILE).strip()
    except (OSError, ValueError):
        return ""


def keep_theme(name: str) -> None:
    """Keep the name of a theme for later runs. A class does not change its teacher's."""
    if browser_session() == "seat":
        raise PermissionError(errno.EPERM, REFUSED)
    replace_file(config_dir() / THEME_FILE, name.encode())


MOST_WHOLE = 64 * 2**20
"""Most bytes of a file that is read at once."""
MOST_TEXT = 1_000_000
"""Most bytes of a text that a person wrote."""
MOST_FILE = 4 * 2**30
"""Most bytes of a file that is read line by line."""
BUFFER = 2**18
"""Bytes that are read at a time: so much passes over a line without an end twenty times faster than the usual 8 KiB."""
PREFIX = ".llamagym-"
"""Prefix of files and folders while they are being written."""
SUFFIX = ".partial"
"""Suffix of these names."""
ABANDONED_S = 3600.0
"""Age in seconds at which a draft counts as left behind by a crash."""


def regular_file(path: Path, *, most: int = MOST_FILE) -> BinaryIO:
    """A file opened for reading.

    Raises:
        OSError: it cannot be read, is not a regular file (but a folder, a pipe, a device), or has more than `most`
            bytes.
    """
    _require_regular_file(path, most)
    return path.open("rb", BUFFER)


def _require_regular_file(path: Path, most: int) -> None:
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, f"{path.name} is no regular file", str(path))
    if found.st_size > most:
        raise OSError(errno.EFBIG, f"{path.name} has over {most:,} bytes", str(path))


def file_content(path: Path, *, most: int = MOST_WHOLE) -> bytes:
    """All bytes of a file, opened as by `regular_file`."""
    with regular_file(path, most=most) as file:
        return file.read(most)


def file_text(path: Path, *, most: int = MOST_TEXT) -> str:
    """The text of a file, with each line end as one character and without a byte order mark.

    It is opened as by `regular_file`; if it is not UTF-8, UnicodeDecodeError is raised.
    """
    with regular_file(path, most=most) as file:
        return TextIOWrapper(file, encoding="utf-8-sig").read()


def require_regular(folder: Path) -> None:
    """Check a folder that a library will read: each file in it is a regular one and not too large.

    A library would wait for ever for a pipe, and fill the memory with a file without an end. Raises OSError, as
    `regular_file`.
    """
    for path in folder.iterdir():
        if path.is_dir():
            continue
        holds_weights = path.suffix in (".safetensors", ".pt", ".bin", ".gguf")
        most = 2**50 if holds_weights else MOST_FILE // 8
        _require_regular_file(path, most)


def growing_file(path: Path, *, follow: bool = False) -> BufferedRandom:
    """A file opened for reading and for writing at its end; it is made if there is none.

    Raises:
        OSError: as `regular_file`; or it cannot be written, or is a link and `follow` is off.
    """
    _require_writer()
    if path.is_symlink() and not follow:
        raise OSError(errno.ELOOP, f"{path.name} is a link that is not followed", str(path))
    path.touch(mode=0o600)
    _require_regular_file(path, MOST_FILE)
    return path.open("ab+")


def make_folder(path: Path) -> None:
    """Make a folder, and those above it, for its owner only; a folder that exists stays as it is."""
    _require_writer()
    try:
        path.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        if path.parent == path:
            raise
        make_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


def replace_file(path: Path, content: bytes, *, sync: bool = False) -> None:
    """Write a file; the old one stays until the new one is whole. Folders are made; a link is replaced, not followed.

    The new file has the old one's mode; if there was none, only its owner may read it. With `sync`, its content is on
    the disk itself before it takes the old one's place, and not only with the operating system.
    """
    make_folder(path.parent)
    discard_drafts(path.parent, older_than_s=ABANDONED_S)
    from tempfile import mkstemp  # an import at the top would delay the first frame

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
    """A new, empty folder, for its owner only, to be filled and then renamed."""
    _require_writer()
    from tempfile import mkdtemp

    return Path(mkdtemp(SUFFIX, PREFIX, parent))


def link_folder(source: Path, target: Path) -> None:
    """Put everything in one folder into another one, too: as hard links where the system has them, else as copies."""
    _require_writer()
    shutil.copytree(source, target, symlinks=True, copy_function=_linked, dirs_exist_ok=True)


def _linked(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def discard_drafts(folder: Path, *, older_than_s: float = 0.0) -> None:
    """Remove the drafts that a crash left behind; a draft that cannot be removed stays."""
    for draft in folder.glob(f"{PREFIX}*{SUFFIX}"):
        with contextlib.suppress(OSError):
            if time.time() - draft.lstat().st_mtime >= older_than_s:
                discard(draft)


def discard(path: Path) -> None:
    """Remove a file, or a folder with all that is in it; from a link, only the link. It may be gone already."""
    _require_writer()
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make sure that the names of new and renamed files are on the disk, if the system can do that."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def torn_line_start(file: IO[bytes]) -> int:
    """The byte at which the last line begins if it has no end, as a crash may leave one; else the file's length."""
    end = file.seek(0, os.SEEK_END)
    while end:  # backwards, a block at a time
        start = max(0, end - 65_536)
        file.seek(start)
        block = file.read(end - start)
        newline = block.rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0
