"""Downloads a model's files into the hub's cache, and tells how far that is; loading them is up to the engine.

What fails here is left to the loading, which has the sentence for it.
"""

import logging
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from fnmatch import fnmatch
from pathlib import Path

import huggingface_hub

from llamagym_tui.engine.model.hub import is_reachable
from llamagym_tui.engine.model.packaged import LOOK_EVERY_S, bytes_so_far
from llamagym_tui.model_registry import MEGABYTE
from llamagym_tui.returns import left_text
from llamagym_tui.trainer.event_sinks import TimeLeft

FILES = ("*.safetensors", "*.json", "*.jinja", "tokenizer.model", "merges.txt", "vocab.txt")
"""What a model is loaded from; the same weights in other formats are left out."""
SO_FAR = re.compile(r"([\d,]+) of ([\d,]+) MB$")
Notify = Callable[[str], None]
log = logging.getLogger(__name__)


def fetch(name: str, notify: Notify) -> None:
    """Download a model of the hub; `notify` is called with how much of it is there, in words."""
    if not is_reachable(name):
        return
    try:
        short = name.rpartition("/")[2]
        whole = _size_on_hub(name)
        with ThreadPoolExecutor(1) as pool:
            download = pool.submit(
                huggingface_hub.snapshot_download, name, allow_patterns=list(FILES)
            )
            while not wait([download], LOOK_EVERY_S).done:
                done = min(_size_here(name), whole)
                notify(f"downloading {short}, {done / MEGABYTE:,.0f} of {whole / MEGABYTE:,.0f} MB")
            download.result()
    except Exception:  # of the hub's client, of its HTTP library, or of the disk
        log.exception("%s was not downloaded ahead of its loading", name)


def with_time_left(
    notify: Notify, clock: Callable[[], float] = time.monotonic
) -> Callable[[str], None]:
    """A function that adds the time left to what ends in ``34 of 93 MB``, and calls `notify` with it."""
    time_left = TimeLeft(clock)

    def tell(words: str) -> None:
        left = ""
        if found := SO_FAR.search(words):
            done, whole = (int(each.replace(",", "")) for each in found.groups())
            if done < whole:
                left = left_text(time_left.seconds(done, whole))
        notify(f"{words}{left}")

    return tell


def _size_on_hub(name: str) -> int:
    """Bytes of all files that are downloaded."""
    info = huggingface_hub.HfApi().model_info(name, files_metadata=True)
    return sum(
        file.size or 0
        for file in info.siblings or ()
        if any(fnmatch(file.rfilename, pattern) for pattern in FILES)
    )


def _size_here(name: str) -> int:
    """Bytes of what is in the cache, files under way included."""
    cache = Path(huggingface_hub.constants.HF_HUB_CACHE)
    blobs = cache / f"models--{name.replace('/', '--')}" / "blobs"
    return sum(bytes_so_far(file) for file in blobs.glob("*"))
