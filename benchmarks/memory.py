"""How much memory a run takes, beside what the preflight says beforehand: models with random weights, trained.

    python -m benchmarks.memory --setting 0.5B-adapter
    python -m benchmarks.memory --setting all

Each setting builds a model in a temporary folder and plays and trains Blackjack in a process of its own, as `train`
does, until its updates are made. Replies of random weights never end, so they have all tokens they may have. The last
line is the measured peak over the predicted one, or of several the one farthest from 1.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

MIB = 2**20


@dataclass(frozen=True)
class Setting:
    """A model's shape, and how it is trained."""

    hidden: int
    layers: int
    heads: int
    key_heads: int
    inner: int
    vocabulary: int
    full: bool
    envs: int = 16
    turns: int = 64
    """Of a batch, and of its one minibatch."""
    reply: int = 16
    updates: int = 1
    """Adam's moments come with the first step, so full fine-tuning is at its peak in the second update."""


SMALL = (256, 6, 4, 4, 704, 4096)
TWENTY = (448, 8, 7, 7, 1216, 4096)
SMOL = (576, 30, 9, 3, 1536, 49_152)
QWEN = (896, 24, 14, 2, 4864, 151_936)
SETTINGS = {
    "6M-full": Setting(*SMALL, full=True, turns=128, updates=2),
    "20M-full": Setting(*TWENTY, full=True, updates=2),
    "20M-full-128-envs": Setting(*TWENTY, full=True, envs=128, turns=128, updates=2),
    "135M-adapter": Setting(*SMOL, full=False),
    "135M-full": Setting(*SMOL, full=True, updates=2),
    "0.5B-adapter": Setting(*QWEN, full=False, turns=40),
}


def main(
    setting: Annotated[str, typer.Option(help=f"One of {', '.join(SETTINGS)}, or all.")] = "0.5B-adapter",
    child: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> None:
    """Predict and measure, one setting after the other."""
    if child is not None:
        print(json.dumps(trained(SETTINGS[setting], child)))
        return
    ratios = [measured(name) for name in (SETTINGS if setting == "all" else [setting])]
    farthest = max(ratios, key=lambda ratio: abs(math.log(ratio)))
    print(f"measured over predicted {'' if len(ratios) == 1 else 'where farthest from 1 '}{farthest:.2f}")


def measured(name: str) -> float:
    """Measured over predicted peak of a setting, told with its parts."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.memory", "--setting", name, "--child", folder]
        build = "from benchmarks.memory import *; build(SETTINGS[sys.argv[1]], Path(sys.argv[2]))"
        subprocess.run([sys.executable, "-c", build, name, folder], check=True)
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


def build(setting: Setting, folder: Path) -> None:
    """A model with random weights and the bundled tokenizer."""
    import torch
    from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

    from llamagym_tui.engine.model.loading import bundled_model_path

    torch.manual_seed(0)
    config = Qwen2Config(
        hidden_size=setting.hidden,
        num_hidden_layers=setting.layers,
        num_attention_heads=setting.heads,
        num_key_value_heads=setting.key_heads,
        intermediate_size=setting.inner,
        vocab_size=setting.vocabulary,
        tie_word_embeddings=True,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder / "weights")
    AutoTokenizer.from_pretrained(bundled_model_path(), local_files_only=True).save_pretrained(folder / "weights")


def trained(setting: Setting, folder: Path) -> dict[str, Any]:
    """Predict the peak of a run, then make it and look."""
    import queue
    from dataclasses import asdict

    from llamagym_tui.config import GenerationConfig, PPOConfig, RunConfig
    from llamagym_tui.engine.free_memory import peak_memory
    from llamagym_tui.protocol.commands import AnyCommand, Stop
    from llamagym_tui.protocol.events import Event, RunFinished, UpdateFinished
    from llamagym_tui.run_store import RunStore
    from llamagym_tui.trainer.builders import Builders
    from llamagym_tui.trainer.preflight import preflight
    from llamagym_tui.trainer.session import Session

    config = RunConfig(
        agent="blackjack",
        model=str(folder / "weights"),
        run_dir=str(folder / "run"),
        n_envs=setting.envs,
        device="cpu",
        threads=1,
        full_finetuning=setting.full,
        generation=GenerationConfig(max_new_tokens=setting.reply),
        ppo=PPOConfig(batch_size=setting.turns, mini_batch_size=setting.turns, epochs=1, critic_warmup_updates=0),
    )
    said = preflight(config, Builders(config).agent())
    assert said is not None, "the configuration has just been written"
    asked: queue.SimpleQueue[AnyCommand] = queue.SimpleQueue()
    seen: list[Event] = []

    def look(event: Event) -> None:
        if isinstance(event, UpdateFinished | RunFinished):
            seen.append(event)
            if isinstance(event, UpdateFinished) and event.update == setting.updates:
                asked.put(Stop())

    session = Session(config, RunStore.create(config), asked, sinks=[look])
    session.run()
    if session.error is not None:
        raise session.error
    finished = seen[-1]
    assert isinstance(finished, RunFinished)
    return {
        "parameters": said.parameters,
        "parts": asdict(said.estimate),
        "predicted": said.estimate.total,
        "measured": peak_memory(),
        "updates": finished.updates,
        "elapsed_s": finished.elapsed_s,
    }


if __name__ == "__main__":
    typer.run(main)
