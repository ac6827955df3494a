"""Peak memory of a run, and what the preflight predicts: models with random weights, trained.

    python -m benchmarks.memory --setting 0.5B-adapter
    python -m benchmarks.memory --setting all

Each setting builds a model in a temporary folder, and plays and trains Cart Pole in a process of its own, as `train`
does, until its updates are made: what repeats is computed once, and there no prompt repeats. Replies of random weights
never end, so they have all tokens they may have. The last line is the measured peak over the predicted one, or of
several settings the ratio farthest from 1.
"""

from __future__ import annotations

import json
import math
import queue
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from llamagym_tui.config import Device, RunConfig

MIB = 2**20
COMMAND = [sys.executable, "-m", "benchmarks.memory"]


@dataclass(frozen=True)
class Setting:
    """A model's shape, and how it is trained."""

    shape: dict[str, int]
    full: bool
    envs: int = 16
    turns: int = 64
    """Of a batch, and of its one minibatch."""
    updates: int = 1
    """Adam's moments come with the first step, so full fine-tuning is at its peak in the second update."""


SHAPE = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
)


def shape(*sizes: int, vocabulary: int) -> dict[str, int]:
    return dict(zip(SHAPE, sizes, strict=True), vocab_size=vocabulary)


TWENTY = shape(448, 8, 7, 7, 1216, vocabulary=4096)
SMOL = shape(576, 30, 9, 3, 1536, vocabulary=49_152)
SETTINGS = {
    "6M-full": Setting(shape(256, 6, 4, 4, 704, vocabulary=4096), full=True, turns=128, updates=2),
    "20M-full": Setting(TWENTY, full=True, updates=2),
    "20M-full-128-envs": Setting(TWENTY, full=True, envs=128, turns=128, updates=2),
    "135M-adapter": Setting(SMOL, full=False),
    "135M-full": Setting(SMOL, full=True, updates=2),
    "0.5B-adapter": Setting(shape(896, 24, 14, 2, 4864, vocabulary=151_936), full=False, turns=40),
}


def main(
    setting: Annotated[
        str, typer.Option(help=f"One of {', '.join(SETTINGS)}, or all.")
    ] = "0.5B-adapter",
    build: Annotated[Path | None, typer.Option(hidden=True)] = None,
    train: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> None:
    if build is not None:
        build_model(SETTINGS[setting].shape, build / "weights")
    elif train is not None:
        print(json.dumps(trained(SETTINGS[setting], train)))
    else:
        ratios = [measured(name) for name in (SETTINGS if setting == "all" else [setting])]
        farthest = max(ratios, key=lambda ratio: abs(math.log(ratio)))
        print(
            f"measured over predicted {'' if len(ratios) == 1 else 'where farthest from 1 '}{farthest:.2f}"
        )


def measured(name: str) -> float:
    """Measured over predicted peak of a setting; both are printed, with the parts of the prediction."""
    with tempfile.TemporaryDirectory() as folder:
        build(name, Path(folder))
        command = [*COMMAND, "--setting", name, "--train", folder]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout.strip().splitlines()[-1])
    parts = ", ".join(f"{part} {amount / MIB:.0f}" for part, amount in found["parts"].items())
    print(f"{name}: {found['parameters']:,} parameters; MiB by parts: {parts}")
    ratio = found["measured"] / found["predicted"]
    print(
        f"{name}: predicted {found['predicted'] / MIB:.0f} MiB, measured {found['measured'] / MIB:.0f} MiB,"
        f" ratio {ratio:.2f}; {found['updates']} updates in {found['elapsed_s']:.0f} s",
        flush=True,
    )
    return ratio


def build(name: str, folder: Path) -> None:
    """The model of a setting, in `weights` of a folder; by a process of its own, whose memory does not count."""
    subprocess.run([*COMMAND, "--setting", name, "--build", str(folder)], check=True)


def build_model(shape: dict[str, int], folder: Path) -> None:
    """A Qwen2 of random weights with the bundled tokenizer."""
    import torch
    from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

    from llamagym_tui.engine.model.sources import bundled_model_path

    torch.manual_seed(0)
    Qwen2ForCausalLM(Qwen2Config(**shape, tie_word_embeddings=True)).save_pretrained(folder)
    AutoTokenizer.from_pretrained(bundled_model_path(), local_files_only=True).save_pretrained(
        folder
    )


def config_of(setting: Setting, folder: Path, device: Device) -> RunConfig:
    """The settings of a run with the model in `weights` of a folder."""
    from llamagym_tui.config import GenerationConfig, PPOConfig, RunConfig

    return RunConfig(
        agent="cart_pole",
        model=str(folder / "weights"),
        run_dir=str(folder / "run"),
        n_envs=setting.envs,
        device=device,
        threads=1,
        full_finetuning=setting.full,
        generation=GenerationConfig(max_new_tokens=16),
        ppo=PPOConfig(
            batch_size=setting.turns,
            mini_batch_size=setting.turns,
            epochs=1,
            critic_warmup_updates=0,
        ),
    )


def trained(setting: Setting, folder: Path) -> dict[str, Any]:
    """Predict the peak of a run, then train and measure it."""
    from benchmarks.bare_run import run_session
    from llamagym_tui.protocol.commands import AnyCommand, Stop
    from llamagym_tui.protocol.events import Event, RunFinished, UpdateFinished
    from llamagym_tui.trainer.builders import Builders
    from llamagym_tui.trainer.preflight import preflight

    config = config_of(setting, folder, "cpu")
    predicted = preflight(config, Builders(config).agent())
    assert predicted is not None, "the configuration has just been written"
    found: dict[str, Any] = {}

    def on_event(event: Event, commands: queue.SimpleQueue[AnyCommand]) -> None:
        if isinstance(event, UpdateFinished) and event.update == setting.updates:
            commands.put(Stop())
        elif isinstance(event, RunFinished):
            found.update(updates=event.updates, elapsed_s=event.elapsed_s)

    run_session(config, on_event)
    return {
        "parameters": predicted.parameters,
        "parts": asdict(predicted.estimate),
        "predicted": predicted.estimate.total,
        "measured": getrusage(RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024),
        **found,
    }


if __name__ == "__main__":
    typer.run(main)
