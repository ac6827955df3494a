"""What a change of the house must leave as it is, written into a folder as text: ``python -m scripts.goldens FOLDER``.

Run it before the change and after it, into two folders, and compare them by ``diff -r``. Pictures are compared by the
tests of screens. Runs play on one thread by one seed; what depends on the clock is left out.
"""

import hashlib
import os
import pkgutil
import queue
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from textual.binding import Binding
from textual.dom import DOMNode

from llamagym_tui import screens

RUNS: dict[str, dict[str, Any]] = {
    "generate-full": {"agent": "blackjack", "full_finetuning": True},
    "generate-adapter": {"agent": "blackjack", "full_finetuning": False},
    "score-full": {
        "agent": "blackjack",
        "full_finetuning": True,
        "generation": {"policy": "score"},
    },
    "score-adapter": {
        "agent": "blackjack",
        "full_finetuning": False,
        "generation": {"policy": "score"},
    },
    "token-credit": {"agent": "frozen-lake", "full_finetuning": True, "ppo": {"credit": "token"}},
    "cut-batches": {
        "agent": "cart-pole",
        "full_finetuning": True,
        "ppo": {"whole_episodes": False},
    },
}
"""Settings of each run whose events and weights are kept."""
UPDATES = 3
TIMED = (
    "at_s",
    "elapsed_s",
    "update_s",
    "rollout_s",
    "tokens_per_s",
    "episodes_per_s",
    "run_dir",
    "pid",
)
"""Fields of events that differ from one run to the next."""
PACED = ("EpisodesCounted", "PhaseChanged")
"""Events that come by the clock."""


def keyed_classes() -> Iterator[type[DOMNode]]:
    """Screens and widgets with `BINDINGS` of their own. Imports every screen."""
    for info in pkgutil.walk_packages(screens.__path__, f"{screens.__name__}."):
        for kind in vars(import_module(info.name)).values():
            if (
                isinstance(kind, type)
                and issubclass(kind, DOMNode)
                and kind.__module__ == info.name
                and "BINDINGS" in vars(kind)
            ):
                yield kind


def write_bindings(folder: Path) -> None:
    """Every key, by the class that binds it."""
    lines = sorted(
        f"{kind.__module__}.{kind.__name__} {each!r}"
        for kind in keyed_classes()
        for each in Binding.make_bindings(vars(kind)["BINDINGS"])
    )
    (folder / "bindings.txt").write_text("\n".join(lines))


def write_tables(folder: Path) -> None:
    """Figures and live settings, in their order."""
    from llamagym_tui.config import FIGURES, LIVE

    lines = [
        f"{name} FigureText(title={figure.title!r}, short={figure.short!r}, meaning={figure.meaning!r}, "
        f"healthy={figure.healthy!r}, low={figure.low!r}, high={figure.high!r})"
        for name, figure in FIGURES.items()
    ]
    lines += [f"charted {name}" for name, figure in FIGURES.items() if figure.charted]
    lines += [
        f"live {name} LiveSetting(title={live.title!r}, meaning={live.meaning!r})"
        for name, live in LIVE.items()
    ]
    (folder / "tables.txt").write_text("\n".join(lines))


def write_help(folder: Path) -> None:
    """The help of every command, 100 columns wide."""
    from typer.main import get_command
    from typer.testing import CliRunner

    from llamagym_tui.cli.main import app

    group: Any = get_command(app)
    demos = group.commands["demos"].commands
    calls = [[], *([name] for name in group.commands), *(["demos", name] for name in demos)]
    texts = []
    for words in calls:
        found = CliRunner().invoke(
            app, [*words, "--help"], env={"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
        )
        texts.append(f"$ {' '.join(words)} --help\n{found.output}")
    (folder / "help.txt").write_text("\n".join(texts))


def write_run(folder: Path, name: str, settings: dict[str, Any]) -> None:
    """The events of a seeded run without its times, and a hash of the weights that it ends with."""
    import msgspec
    import torch

    from benchmarks.bare_run import run_session
    from llamagym_tui.config import RunConfig, from_dict
    from llamagym_tui.protocol.commands import AnyCommand, Stop
    from llamagym_tui.protocol.events import Event, UpdateFinished

    lines: list[str] = []
    updates = 0

    def keep(event: Event, commands: queue.SimpleQueue[AnyCommand]) -> None:
        nonlocal updates
        values = msgspec.to_builtins(event)
        if values["type"] not in PACED:
            lines.append(msgspec.json.encode(_without_times(values), order="sorted").decode())
        if isinstance(event, UpdateFinished):
            updates += 1
            if updates == UPDATES:
                commands.put(Stop())

    with tempfile.TemporaryDirectory() as run_dir:
        ppo = {"batch_size": 192, "mini_batch_size": 64, "epochs": 2, **settings.get("ppo", {})}
        values = {**settings, "ppo": ppo, "n_envs": 16, "threads": 1, "seed": 3, "run_dir": run_dir}
        values["checkpoint_every_s"] = 1e6
        config = from_dict(RunConfig, values)
        session = run_session(config, keep)
        assert session.active_run is not None
        digest = hashlib.sha256()
        for key, weight in sorted(session.active_run.policy.model.state_dict().items()):
            digest.update(key.encode())
            digest.update(weight.detach().to(torch.float32).contiguous().numpy().tobytes())
    lines.append(f"weights {digest.hexdigest()}")
    (folder / f"run-{name}.jsonl").write_text("\n".join(lines))


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_times(each) for key, each in value.items() if key not in TIMED}
    if isinstance(value, list):
        return [_without_times(each) for each in value]
    return value


def main() -> None:
    """Write everything into the folder that the command line names."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    os.environ["HF_HUB_OFFLINE"] = "1"
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    write_bindings(folder)
    write_tables(folder)
    write_help(folder)
    for name, settings in RUNS.items():
        write_run(folder, name, settings)


if __name__ == "__main__":
    main()
