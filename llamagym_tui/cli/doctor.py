"""What the program finds where it runs, a line each: versions, processor, memory, terminal, folders, extras.

Nothing is left on disk, and the network is not used. What is broken is a line, too.
"""

import os
import platform
import shutil
import sys
import tempfile
from importlib import metadata, util
from pathlib import Path

from rich.console import Console

import llamagym_tui
from llamagym_tui import user_files
from llamagym_tui.protocol.literal import echo

LIBRARIES = ("torch", "transformers", "trl", "peft", "gymnasium", "textual")
EXTRAS = {  # module, and what it is for
    "minigrid": ("minigrid", "the agent babyai, and all of BabyAI and MiniGrid"),
    "textworld": ("textworld", "the agent textworld, and text games from files (Linux)"),
    "openenv": ("openenv", "docs/examples/openenv_agent.py, for a server of OpenEnv's"),
    "gem": ("reasoning_gym", "docs/examples/gem_agent.py, with pip install --no-deps gem-llm"),
    "tensorboard": ("tensorboard", "--track tensorboard, track --to tensorboard"),
    "trackio": ("trackio", "--track trackio, track --to trackio"),
    "wandb": ("wandb", "--track wandb, track --to wandb"),
    "minari": ("minari", "demos export --to minari, demos import minari"),
    "sweep": ("optuna", "llamagym-tui sweep"),
    "serve": ("textual_serve", "llamagym-tui serve"),
}


def report() -> int:
    """Print all lines; the exit code is 1 if something is wrong that a run needs."""
    found = {"llamagym-tui": f"{llamagym_tui.__version__} in {Path(llamagym_tui.__file__).parent}"}
    found["python"] = f"{platform.python_version()} on {platform.platform()}"
    versions = {dist.name.lower(): dist.version for dist in metadata.distributions() if dist.name}
    found |= {name: versions.get(name, "PROBLEM: not installed") for name in LIBRARIES} | _trial()
    size = "{}x{}".format(*shutil.get_terminal_size())
    seen = f"{size}, colours: {Console().color_system or 'none'}, {sys.stdout.encoding}"
    found["terminal"] = seen if sys.stdout.isatty() else "none; only the playground needs one"
    found |= {
        name: _place(getattr(user_files, f"{name}_dir")()) for name in ("data", "cache", "config")
    }
    for extra, (module, purpose) in EXTRAS.items():
        how = (
            "installed"
            if util.find_spec(module)
            else f"not installed (pip install 'llamagym-tui[{extra}]')"
        )
        found[f"[{extra}]"] = f"{how}: {purpose}"
    for name, text in found.items():
        echo(f"{name:<13} {text}")
    return int(any(text.startswith("PROBLEM:") for text in found.values()))


def _trial() -> dict[str, str]:
    """Device, memory and threads, as a run with the bundled model finds them."""
    try:
        from llamagym_tui.config import RunConfig
        from llamagym_tui.trainer.builders import Builders
        from llamagym_tui.trainer.preflight import preflight

        parts = Builders(RunConfig(agent="blackjack", run_dir=""))
        agent, loaded = parts.agent(), parts.model()
        threads = f"{parts.threads(parts.policy(agent, loaded), loaded)} for the bundled model, measured now"
        found = preflight(parts.config, agent)
        memory = f"{found.there / 2**30:.1f} GiB for this process" if found else "unknown"
    except Exception as error:
        return {"a run": f"PROBLEM: {type(error).__name__}: {error}"}
    return {"device": loaded.device, "memory": memory, "threads": threads}


def _place(folder: Path) -> str:
    there = next(each for each in [folder, *folder.parents] if os.path.exists(each))
    try:
        with tempfile.TemporaryFile(dir=there):
            return f"{folder}, {shutil.disk_usage(there).free / 2**30:.1f} GiB free"
    except OSError as error:
        return f"PROBLEM: {folder} cannot be written: {error.strerror}"
