"""`doctor`: prints in a line each what the program finds: versions, processor, memory, terminal, folders, extras.

Nothing is left on disk, and the network is not used. What is broken has its line, too.
"""

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from importlib import metadata, util
from pathlib import Path

import llamagym_tui
from llamagym_tui import user_files
from llamagym_tui.protocol.literal import echo
from llamagym_tui.setup.extras import EXTRAS, install_command

LIBRARIES = ("torch", "transformers", "trl", "peft", "gymnasium", "textual")


def report() -> int:
    """Print all lines; the exit code is 1 if something is wrong that a run needs."""
    found = {"llamagym-tui": f"{llamagym_tui.__version__} in {Path(llamagym_tui.__file__).parent}"}
    found["python"] = f"{platform.python_version()} on {platform.platform()}"
    versions = {dist.name.lower(): dist.version for dist in metadata.distributions() if dist.name}
    for name in LIBRARIES:
        found[name] = versions.get(name, "PROBLEM: not installed")
    try:
        found |= _trial()
    except Exception as error:
        found["a run"] = f"PROBLEM: {type(error).__name__}: {error}"
    found["terminal"] = "none; only the playground needs one"
    if sys.stdout.isatty():
        columns, rows = shutil.get_terminal_size()
        found["terminal"] = f"{columns}x{rows}, {os.environ.get('TERM')}, {sys.stdout.encoding}"
    found["data"] = _place(user_files.data_dir)
    found["cache"] = _place(user_files.cache_dir)
    found["config"] = _place(user_files.config_dir)
    for name, extra in EXTRAS.items():
        how = "installed"
        if util.find_spec(extra.module) is None:
            how = f"not installed ({install_command(name)})"
        found[f"[{name}]"] = f"{how}: {extra.purpose}"
    for name, text in found.items():
        echo(f"{name:<13} {text}")
    return int(any(text.startswith("PROBLEM:") for text in found.values()))


def _trial() -> dict[str, str]:
    """The device, memory and threads that a run with the bundled model finds."""
    from llamagym_tui.engine.model.loading import as_gib, free_memory
    from llamagym_tui.settings import RunConfig
    from llamagym_tui.trainer.builders import Builders

    parts = Builders(RunConfig(agent="blackjack", run_dir=""))
    loaded = parts.model()
    threads = parts.threads(parts.policy(parts.agent(), loaded), loaded)
    return {
        "device": loaded.device,
        "memory": f"{as_gib(free_memory(loaded.device))} free",
        "threads": f"{threads} for the bundled model",
    }


def _place(find: Callable[[], Path]) -> str:
    """A folder of the user's, which need not be there yet, and how much room there is."""
    try:
        folder = find()
    except user_files.HomelessError as error:
        return f"none; train needs --run-dir: {error}"
    there = next(each for each in [folder, *folder.parents] if os.path.exists(each))
    try:
        with tempfile.TemporaryFile(dir=there):
            return f"{folder}, {shutil.disk_usage(there).free / 2**30:.1f} GiB free"
    except OSError as error:
        return f"PROBLEM: {folder} cannot be written: {error.strerror}"
