"""Writes seeded runs into a folder as text, to see that a change leaves them as they are.

Run ``python -m scripts.goldens FOLDER`` before the change and after it, into two folders, and compare these by
``diff -r``. Runs play on one thread by one seed; what depends on the clock is left out.
"""

import hashlib
import os
import queue
import sys
import tempfile
from pathlib import Path
from typing import Any

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
    "lake": {"agent": "frozen-lake", "full_finetuning": True},
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
    "episodes_per_s",
    "run_dir",
    "pid",
)
"""Fields of events that differ from one run to the next."""
PACED = ("EpisodesCounted", "PhaseChanged", "PolicyMapped")
"""Events that come by the clock."""


def write_run(folder: Path, name: str, settings: dict[str, Any]) -> None:
    """The events of a seeded run without its times, and a hash of the weights that it ends with."""
    import msgspec
    import torch

    from benchmarks.bare_run import run_session
    from llamagym_tui.protocol.commands import AnyCommand, Stop
    from llamagym_tui.protocol.events import Event, UpdateFinished
    from llamagym_tui.settings import RunConfig, from_dict

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
        digest = hashlib.sha256()
        for key, weight in sorted(session.policy.model.state_dict().items()):
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
    for name, settings in RUNS.items():
        write_run(folder, name, settings)


if __name__ == "__main__":
    main()
